"""Pages of the reference: Python names from their docstrings, commands from the command line."""

import inspect
import re
from typing import Any

from public_names import PAGES, find_object, identifiers, public_names
from rest_docstrings import as_markdown

import infoshot
from infoshot import METHODS, Method, Solver
from infoshot.cli._commands import COMMANDS
from infoshot.cli.app import app, load_command
from infoshot.solvers import ASSUMPTIONS

_CODE = re.compile(r'(?<!">)<code>([\w.]+)</code>')  # not within a link
_EXAMPLE = re.compile(r"((?:.* )?\w+): (infoshot .*)")
# What people use most, shown before the list of all names.
_GROUPS = {
    "Actions": lambda value: inspect.isfunction(value),
    "Methods": lambda value: inspect.isclass(value) and _is_method(value),
    "Exceptions": lambda value: inspect.isclass(value) and issubclass(value, BaseException),
    "Other classes": inspect.isclass,
    "Data": lambda value: True,
}


def write_pages() -> dict[str, str]:
    """Return the text of all pages of the reference, by their place in the site."""
    pages = {"reference/index.md": _write_overview()}
    for page, names in public_names().items():
        pages[f"reference/{page}.md"] = _write_page(page, names)
    for kind in _method_classes():
        pages[f"reference/methods/{kind.__name__}.md"] = _write_method(kind)
    pages["reference/commands/index.md"] = _write_commands()
    for name in COMMANDS:
        pages[f"reference/commands/{name}.md"] = _write_command(name)
    return pages


def navigation() -> list[Any]:
    """Return the part of the navigation with the reference."""
    commands = [{f"infoshot {name}": f"reference/commands/{name}.md"} for name in COMMANDS]
    kinds = sorted((kind.__name__ for kind in _method_classes()), key=str.lower)
    methods = [{kind: f"reference/methods/{kind}.md"} for kind in kinds]
    pages: list[Any] = []
    for page, (title, _) in PAGES.items():
        entry = f"reference/{page}.md"
        pages.append({title: [entry, *methods]} if page == "solvers" else {title: entry})
    return [
        "reference/index.md",
        {"Commands": ["reference/commands/index.md", *commands]},
        {"Python": pages},
    ]


def link_names(html: str) -> str:
    """Link public names that a text names as code: classes, and full names such as infoshot.bench.

    The plugin autorefs replaces the element that this writes. Other names, such as ``label``, also
    mean commands and folders.
    """

    def replace(match: re.Match[str]) -> str:
        known = identifiers()
        name = match[1] if match[1] in known.values() else known.get(match[1], "")
        if not name or (match[1].islower() and "." not in match[1]):
            return match[0]
        return f'<autoref identifier="{name}">{match[0]}</autoref>'

    return _CODE.sub(replace, html)


def _is_method(kind: type) -> bool:
    return issubclass(kind, Solver) and kind is not Solver


def _method_classes() -> list[type]:
    """Return the classes of all methods."""
    return list(dict.fromkeys(type(method.solver) for method in METHODS.values()))


def _shared_bases() -> list[str]:
    """Return the classes between ``Solver`` and those of methods; they have settings."""
    bases = {base for kind in _method_classes() for base in kind.__mro__[1:] if _is_method(base)}
    return sorted(f"{base.__module__}.{base.__name__}" for base in bases - {*_method_classes()})


def _first_line(value: object) -> str:
    """Return the first sentence of a docstring, for a table."""
    text = (inspect.getdoc(value) or "").split("\n\n")[0]
    return as_markdown(text).replace("\n", " ").replace("``", "`").replace("|", "\\|")


def _write_overview() -> str:
    """Return the page with all names of ``infoshot``."""
    values = {name: getattr(infoshot, name) for name in sorted(infoshot.__all__, key=str.lower)}
    text = (
        "# Reference\n\nGenerated from the docstrings of the package and from the help of its "
        "commands.\n\n- [Commands](commands/index.md), with all options\n- Python: the names of "
        "`infoshot` below, and those of its packages in the navigation\n"
    )
    for title, belongs in _GROUPS.items():
        group = [name for name, value in values.items() if belongs(value)]
        rows = [f"| [`{n}`][infoshot.{n}] | {_summary(n, values.pop(n))} |" for n in group]
        text += f"\n## {title}\n\n| name | |\n|---|---|\n" + "\n".join(rows) + "\n"
    return text


def _summary(name: str, value: object) -> str:
    if inspect.isclass(value) or inspect.isfunction(value):
        return _first_line(value)
    return {"METHODS": "The methods by name.", "__version__": "The version."}[name]


def _write_page(page: str, names: tuple[str, ...]) -> str:
    """Return the page of a package; classes of methods have pages of their own."""
    title, modules = PAGES[page]
    own = [name for name in names if find_object(name) not in _method_classes()]
    text = f"# {title}\n\n{_introduction(f'infoshot.{modules[0]}')}"
    if page == "solvers":
        text += _write_list_of_methods()
        own += _shared_bases()
    return text + "".join(_entry(name) for name in own)


def _entry(name: str, members: bool = True) -> str:
    """Return the block that mkdocstrings replaces by the entry of a name."""
    options = "      show_root_full_path: true\n" + ("" if members else "      members: []\n")
    return f"::: {name}\n    options:\n{options}\n"


def _introduction(module: str) -> str:
    """Return the block that mkdocstrings replaces by the docstring of a module."""
    return (
        f"::: {module}\n    options:\n      members: []\n      show_root_heading: false\n"
        "      show_root_toc_entry: false\n\n"
    )


def _write_list_of_methods() -> str:
    rows = [
        f"| `{method.name}` | [`{type(method.solver).__name__}`][infoshot."
        f"{type(method.solver).__name__}] | {method.summary} | {_assumed(method)} |"
        for method in METHODS.values()
    ]
    return (
        "## The methods\n\n`infoshot methods` prints this list. What a method assumes is explained "
        "in [Choosing a method](../how-to-choose.md).\n\n| name | class | does | assumes |\n"
        "|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
    )


def _assumed(method: Method) -> str:
    return ", ".join(method.assumes) or "nothing"


def _write_method(kind: type) -> str:
    """Return the page of a method: its facts, its module, its class."""
    own = [method for method in METHODS.values() if type(method.solver) is kind]
    text = f"# {kind.__name__}\n\n"
    for method in own:
        assumed = "; ".join(ASSUMPTIONS[name] for name in method.assumes) or "nothing"
        text += (
            f"| method | `{method.name}` |\n|---|---|\n| does | {method.summary} |\n"
            f"| assumes | {assumed} |\n| preparation of the features | `{method.preparation}` |\n"
            f"| main operations | {method.cost.replace('|', chr(92) + '|')} |\n"
            f"| classifies new samples | {'yes' if method.inductive else 'no'} |\n\n"
        )
    return (
        text + _introduction(kind.__module__) + _entry(f"infoshot.{kind.__name__}", members=False)
    )


def _write_commands() -> str:
    rows = [f"| [`infoshot {name}`]({name}.md) | {text} |" for name, (_, text) in COMMANDS.items()]
    return (
        f"# Commands\n\n{app.info.help}\n\nEvery command has `--help`. The exit code is 0, 2 for "
        "wrong usage or bad input, and 1 for a failure; `--debug` shows tracebacks.\n\n"
        "| command | does |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def _write_command(name: str) -> str:
    """Return the page of a command, and of its own commands."""
    command = load_command(name)
    text = f"# infoshot {name}\n\n"
    if hasattr(command, "commands"):
        text += f"{COMMANDS[name][1]}\n\n"
        for part, own in command.commands.items():
            text += f"## infoshot {name} {part}\n\n{_describe(f'{name} {part}', own)}"
        return text
    return text + _describe(name, command)


def _describe(name: str, command: Any) -> str:  # noqa: ANN401 - a command of typer
    """Return help, usage, arguments and options of a command."""
    paragraphs = (command.help or "").split("\n\n")
    shown = [_write_paragraph(" ".join(paragraph.split())) for paragraph in paragraphs]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(["infoshot", name, *(_argument_name(p) for p in arguments), "[OPTIONS]"])
    text = f"```\n{usage}\n```\n\n" + "\n\n".join(shown) + "\n\n"
    for title, parameters in (("argument", arguments), ("option", options)):
        rows = [_write_row(parameter) for parameter in parameters if not parameter.hidden]
        if rows:
            text += f"| {title} | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
    return text


def _write_paragraph(text: str) -> str:
    """Return a paragraph of a help text; examples as code."""
    found = _EXAMPLE.fullmatch(text)
    if not found:
        return _cell(text)
    lines = found[2].replace(", then ", "\n")
    return f"{found[1]}:\n\n```\n{lines}\n```"


def _argument_name(parameter: Any) -> str:  # noqa: ANN401 - a parameter of typer
    name = str(parameter.name).upper()
    return name if parameter.required else f"[{name}]"


def _write_row(parameter: Any) -> str:  # noqa: ANN401 - a parameter of typer
    is_argument = parameter.param_type_name == "argument"
    names = [_argument_name(parameter)] if is_argument else [*parameter.opts]
    names += parameter.secondary_opts
    default = parameter.default
    if parameter.required:
        shown = "required"
    elif default in (None, False, ()) or not parameter.show_default:
        shown = ""
    else:
        shown = f"`{default}`"
    return f"| {', '.join(f'`{n}`' for n in names)} | {_cell(parameter.help or '')} | {shown} |"


def _cell(text: str) -> str:
    """Return plain text as Markdown."""
    for mark in "\\|*_<>[]`":
        text = text.replace(
            mark, f"\\{mark}" if mark not in "<>" else {"<": "&lt;", ">": "&gt;"}[mark]
        )
    return " ".join(text.split())
