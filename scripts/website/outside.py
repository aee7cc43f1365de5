"""Pages about files that are not in docs/: README, results, and source files that pages link to.

Files of the repository keep their place in the site: ``results/methods.md`` becomes
``results/methods.html``. Source files and folders are shown under ``source/``.
"""

import os.path
import posixpath
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Pages of the site, by the file of the repository that they show.
_PAGES = {
    "README.md": "index.md",
    "results/README.md": "results/index.md",
    "results/core.md": "results/core.md",
    "results/methods.md": "results/methods.md",
    "results/training.md": "results/training.md",
    "results/perf.md": "results/perf.md",
    "results/reliability.md": "results/reliability.md",
    "results/reproduce/README.md": "results/reproduce/index.md",
    "results/reproduce/tables.md": "results/reproduce/tables.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}
RESULTS = [
    "results/index.md",
    {"Accuracy and agreement with the paper": "results/core.md"},
    {"All methods in all regimes": "results/methods.md"},
    {"Our report of the paper": "results/reproduce/index.md"},
    {"Tables of our report": "results/reproduce/tables.md"},
    {"Training": "results/training.md"},
    {"Speed": "results/perf.md"},
    {"Reliability": "results/reliability.md"},
]
PROJECT = [
    {"Architecture": "project/architecture.md"},
    {"Contributing": "project/contributing.md"},
    {"Changelog": "project/changelog.md"},
    {"Security": "project/security.md"},
]
_COPIED = {".png", ".gif", ".svg", ".html", ".json", ".csv"}  # browsers show these
_LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".sh": "bash"}
_NAMED_PAGE = re.compile(r"<code>docs/([\w-]+)\.md</code>")
_LINK = re.compile(r"(?P<name>\[[\w/.-]+\.md)?\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def find_copies() -> dict[str, Path]:
    """Return pictures and data that pages show or link to, by their place in the site."""
    targets = sorted(_linked_files())
    return {t: ROOT / t for t in targets if Path(t).suffix in _COPIED and not _is_in_docs(t)}


def write_pages() -> dict[str, str]:
    """Return the text of all pages, by their place in the site."""
    pages = {uri: (ROOT / name).read_text(encoding="utf-8") for name, uri in _PAGES.items()}
    pages["index.md"] = "---\nhide: [navigation]\n---\n\n" + pages["index.md"]
    for name in sorted(_linked_files()):
        if _place(name).startswith("source/"):
            show = _show_folder if (ROOT / name).is_dir() else _show_file
            pages[_place(name)] = show(name)
    return pages


def map_links(markdown: str, uri: str) -> str:
    """Let relative links lead to the pages of the files that they name in the repository.

    A link whose text is the name of a file shows the title of the page instead.
    """
    name = _name_of_page(uri)
    if name is None:
        return markdown

    def replace(match: re.Match[str]) -> str:
        target = _resolve(name, match["target"])
        if target is None:
            return match[0]
        place = posixpath.relpath(_place(target), posixpath.dirname(uri) or ".")
        text = f"[{_title(target)}" if match["name"] and target.endswith(".md") else match["name"]
        return f"{text or ''}]({place}{match['anchor'] or ''})"

    return _LINK.sub(replace, markdown)


def link_names(html: str, url: str) -> str:
    """Link the pages of docs/ that a text names as code, as docstrings do."""

    def replace(match: re.Match[str]) -> str:
        if not (ROOT / "docs" / f"{match[1]}.md").is_file():
            return match[0]
        target = posixpath.relpath(f"{match[1]}.html", posixpath.dirname(url) or ".")
        return f'<a href="{target}">{match[0]}</a>'

    return _NAMED_PAGE.sub(replace, html)


def _name_of_page(uri: str) -> str | None:
    """Return the file of the repository that a page shows."""
    names = {uri: name for name, uri in _PAGES.items()}
    if uri in names:
        return names[uri]
    for name in (f"docs/{uri}", f"docs/{uri.removesuffix('.md')}.py"):
        if (ROOT / name).is_file():
            return name
    return None


def _resolve(name: str, link: str) -> str | None:
    """Return the file or folder of the repository that a link in a file names."""
    target = os.path.normpath(posixpath.join(posixpath.dirname(name), link))
    return target if "://" not in link and (ROOT / target).exists() else None


@cache
def _title(name: str) -> str:
    """Return the first heading of a Markdown file."""
    return (ROOT / name).read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0]


def _is_in_docs(name: str) -> bool:
    return name.startswith("docs/")


def _place(name: str) -> str:
    """Return the place of a file or folder of the repository in the site."""
    if name in _PAGES:
        return _PAGES[name]
    if f"{name}/README.md" in _PAGES:
        return _PAGES[f"{name}/README.md"]
    if _is_in_docs(name):
        place = name.removeprefix("docs/")
        is_folder = (ROOT / name).is_dir()
        return f"{place}/index.md" if is_folder else re.sub(r"\.py$", ".md", place)
    return name if Path(name).suffix in _COPIED else f"source/{name}.md"


@cache
def _linked_files() -> frozenset[str]:
    """Files and folders of the repository that pages link to, and Python files of these folders."""
    pages = [*_PAGES, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    found = set()
    for page in pages:
        for match in _LINK.finditer((ROOT / page).read_text(encoding="utf-8")):
            target = _resolve(page, match["target"])
            if target is not None and not target.endswith("/"):
                found.add(target)
    folders = [ROOT / name for name in found if _place(name).startswith("source/")]
    return frozenset(
        found
        | {str(path.relative_to(ROOT)) for f in folders if f.is_dir() for path in f.glob("*.py")}
    )


def _show_file(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    fence = "`" * 6
    language = _LANGUAGES.get(Path(name).suffix, "text")
    return f"{_head(name)}{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _show_folder(name: str) -> str:
    rows = []
    for path in sorted((ROOT / name).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            shown = str(path.relative_to(ROOT / name))
            target = _place(str(path.relative_to(ROOT)))
            if str(path.relative_to(ROOT)) in _linked_files():
                shown = (
                    f"[{shown}]({posixpath.relpath(target, f'source/{posixpath.dirname(name)}')})"
                )
            rows.append(f"| {shown} | {path.stat().st_size:,} |")
    return f"{_head(name)}| file | bytes |\n|---|--:|\n" + "\n".join(rows) + "\n"


def _head(name: str) -> str:
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n"
