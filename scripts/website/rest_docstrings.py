"""Docstrings as Markdown: roles, formulas and literal blocks of reStructuredText.

mkdocstrings reads docstrings as Markdown. This extension of it translates what differs.
"""

import re

import griffe
from public_names import identifiers

_FORMULA = re.compile(r":math:`(.*?)`", re.DOTALL)
_FORMULA_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n\1 +\S.*|\n(?=\n\1 +\S))*)", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`~?([^`]+)`")
_LITERAL = re.compile(r"^(( *)\S.*):$\n\n((?:\2 +\S.*\n?|\n)+)", re.MULTILINE)
_HAS_EXAMPLES = re.compile(r"^ *Examples\n *-+$", re.MULTILINE)
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)
_REFERENCE = re.compile(r"\[([A-Z]\w+)\]_")
_REFERENCE_TEXT = re.compile(r"^( *)\.\. \[(\w+)\] ", re.MULTILINE)
_PARAMETERS = re.compile(r"^Parameters\n-+\n(?:(?!\S.*\n-+$).*\n?)*", re.MULTILINE)
_SEVERAL = re.compile(r"^(\w+(?:, \w+)+)\n((?: +\S.*(?:\n|\Z))+)", re.MULTILINE)
_RETURNS = re.compile(r"^((?:Returns|Yields)\n-+\n)(?>((?:\S.*(?:\n|\Z))+))(?! )", re.MULTILINE)


class RestDocstrings(griffe.Extension):
    """Translates every docstring once, when griffe has read it."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Translate the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Translate the parts of a docstring that Markdown writes differently."""
    text = _PARAMETERS.sub(lambda match: _SEVERAL.sub(_separate, match[0]), text)
    text = _RETURNS.sub(_indent, text)
    text = _FORMULA_BLOCK.sub(_write_block, text)
    text = _FORMULA.sub(lambda match: f"${' '.join(match[1].split())}$", text)
    text = re.sub(r"::$", ":\x00", text, flags=re.MULTILINE)
    text = _LITERAL.sub(_write_code, text.replace(":\x00", "::")).replace("::\n", ":\n")
    if not _HAS_EXAMPLES.search(text):  # griffe knows those of a section
        text = _DOCTEST.sub(r"\1```python\n\g<0>\n\1```", text)
    text = _REFERENCE_TEXT.sub(r"\1[\2] ", _REFERENCE.sub(r"[\1]", text))
    return _ROLE.sub(_write_link, text)


def _separate(match: re.Match[str]) -> str:
    """Return an entry for each of several parameters: griffe gives all of them the first type."""
    body = match[2].rstrip("\n")
    return "".join(f"{name}\n{body}\n" for name in match[1].split(", "))


def _indent(match: re.Match[str]) -> str:
    """Return a section of a text alone: griffe takes it for a type unless it is indented."""
    return f"{match[1]}:\n" + "".join(f"    {line}\n" for line in match[2].splitlines())


def _write_block(match: re.Match[str]) -> str:
    indent, latex = match[1], " ".join(match[2].split())
    return f"{indent}$$\n{indent}{latex}\n{indent}$$"


def _write_code(match: re.Match[str]) -> str:
    if not match[1].endswith(":"):  # an ordinary colon
        return match[0]
    body = match[3].rstrip("\n")
    return f"{match[1].rstrip(':')}:\n\n{match[2]}```python\n{body}\n{match[2]}```\n\n"


def _write_link(match: re.Match[str]) -> str:
    name = match[1].strip()
    shown = name.removeprefix("infoshot.")
    target = identifiers().get(name.rpartition(".")[2])
    return f"[`{shown}`][{target}]" if target else f"`{shown}`"
