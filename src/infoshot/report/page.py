r"""The HTML page of every report: one file that opens from disk and needs nothing else.

Pictures are embedded, nothing is fetched, no script runs and all text is escaped; control
characters and bytes of file names that are not UTF-8 are shown as ``\x1b``. The page adapts
to narrow screens, dark mode and paper. Its markup is in ``page.html.j2``, its style in
``page.css``.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, ClassVar

from infoshot.core.text import visible

if TYPE_CHECKING:
    from jinja2 import Template

_WIDE = 6  # a table with more columns than this is shown in small type
_PROSE = 40  # a column with a cell longer than this holds sentences, which wrap


class Strong(str):
    """Text in bold, such as the best number of a column."""


@dataclass(frozen=True)
class Table:
    """A table of text.

    The first column names the row; the other columns hold numbers, aligned on the right.
    ``caption`` is shown above the table, ``note`` below it. ``headings`` have text that is shown
    above some rows, by the number of the row. Line breaks in cells are kept.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    note: str = ""
    headings: Mapping[int, str] = field(default_factory=dict)
    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"A row must have a cell for each of the {len(self.header)} columns; "
                    f"got {len(row)}: {list(row)}."
                )

    @property
    def prose_columns(self) -> set[int]:
        """Numbers of the columns that hold sentences instead of numbers."""
        return {i for row in self.rows for i, cell in enumerate(row) if len(cell) > _PROSE}

    @property
    def is_wide(self) -> bool:
        """Whether it has so many columns that it is shown in small type."""
        return len(self.header) > _WIDE


@dataclass(frozen=True)
class Picture:
    """A PNG file; ``alt`` describes it to readers who cannot see it."""

    png: bytes
    alt: str
    caption: str
    kind: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    paragraphs: Sequence[str]
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Thumbnail:
    """A small JPEG with a line or two of text; ``alt`` describes it."""

    jpeg: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    """Small pictures side by side."""

    thumbnails: Sequence[Thumbnail]
    caption: str = ""
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Bars:
    """A bar chart: name, value and the text shown for the value, one bar each."""

    bars: Sequence[tuple[str, float, str]]
    caption: str = ""
    kind: ClassVar[str] = "bars"

    @property
    def longest(self) -> float:
        """Value of the longest bar; 1 if all are zero."""
        return max((value for _, value, _ in self.bars), default=0) or 1


@dataclass(frozen=True)
class Details:
    """Parts below a line that the reader clicks to open them."""

    title: str
    parts: Sequence["Part"]
    kind: ClassVar[str] = "details"


Part = Table | Picture | Text | Gallery | Bars | Details


@dataclass(frozen=True)
class Section:
    """A heading and what follows it."""

    title: str
    parts: Sequence[Part]


def page(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """Render a report as one HTML page.

    Parameters
    ----------
    title, subtitle
        The heading and a line below it.
    sections
        The content; more than two sections get a table of contents.

    Returns
    -------
    The whole document.

    Examples
    --------
    >>> "<td>71.4</td>" in page("A", [Section("B", [Table(["method", "%"], [["tim", "71.4"]])])])
    True
    """
    document = _template().render(
        title=title, sections=sections, subtitle=subtitle, css=_resource("page.css")
    )
    return visible(document, keep="\t\n")


@cache
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.tests["strong"] = lambda text: isinstance(text, Strong)
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment.from_string(_resource("page.html.j2"))


def _resource(name: str) -> str:
    return (resources.files("infoshot.report") / name).read_text(encoding="utf-8")
