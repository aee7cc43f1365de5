"""The shell of every HTML report: one page that opens from disk and needs nothing else.

A report is sent around and read years later, so pictures are inside, nothing is fetched, no script
runs, and it reads on a telephone, on a desk, in the dark and on paper. All text is escaped.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_PROSE = 40  # cells longer than this are sentences: they wrap and start on the left
_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1f2328; --soft: #59636e; --line: #d5dae0;
  --shade: #f4f6f8; --link: #0a58ca; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #15181c; --text: #e4e7ea;
  --soft: #a3abb4; --line: #3a4149; --shade: #1f2429; --link: #8ab4f8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 78rem; margin: 0 auto; padding: 1.5rem clamp(1rem, 4vw, 3rem) 3rem; }
h1 { margin: 0; font-size: clamp(1.5rem, 5vw, 2.1rem); line-height: 1.2; }
h2 { margin: 2.5rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line);
  font-size: 1.35rem; line-height: 1.3; }
a { color: var(--link); }
p { max-width: 46rem; margin: .75rem 0; } .soft { color: var(--soft); }
nav { margin-top: 1.5rem; padding: .75rem 1rem; background: var(--shade); border-radius: .4rem; }
nav ol { margin: 0; padding-left: 1.5rem; columns: 18rem; }
nav li { break-inside: avoid; padding: .1rem 0; }
figure { margin: 1.5rem 0; }
figcaption { max-width: 46rem; margin: .5rem 0; font-weight: 600; }
.note { margin: .5rem 0 0; font-size: .9rem; }
.picture figcaption { font-size: .95rem; font-weight: 400; }
img { display: block; max-width: 100%; height: auto; background: #fff; border-radius: .3rem; }
.box { overflow-x: auto; background: linear-gradient(to left, var(--page) 40%, transparent) right /
  3rem 100% no-repeat local, linear-gradient(to left, var(--line), transparent) right /
  1rem 100% no-repeat; } /* a shadow on the right as long as there is more to scroll to */
table { border-spacing: 0; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; white-space: nowrap; font-weight: 400; }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; font-weight: 600;
  white-space: pre; }
tbody .prose { min-width: 15rem; max-width: 32rem; white-space: normal; }
.prose { text-align: left; }
tr > :first-child { position: sticky; left: 0; padding-left: 0; background: var(--page);
  text-align: left; box-shadow: inset -1px 0 var(--line); }
@media (max-width: 48rem) { table { font-size: .9rem; } tbody tr > :first-child { min-width: 6rem;
  max-width: 44vw; white-space: normal; overflow-wrap: break-word; } }
.gallery ul { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr));
  gap: .75rem; margin: 0; padding: 0; list-style: none; }
.gallery img { width: 100%; aspect-ratio: 1; object-fit: contain; background: var(--shade); }
.gallery span { display: block; margin-top: .2rem; font-size: .78rem; line-height: 1.3;
  color: var(--soft); }
.bar { display: grid; grid-template-columns: minmax(5rem, 12rem) 1fr minmax(4rem, 7rem);
  gap: .75rem; align-items: center; padding: .15rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
@media (max-width: 48rem) { .bar { grid-template-columns: 6rem 1fr 3rem; gap: .5rem; } }
.bar i { height: .8rem; background: var(--shade); border-radius: .2rem; overflow: hidden; }
.bar b { display: block; height: 100%; background: var(--link); }
@media print { body { font-size: 10pt; } main { max-width: none; padding: 0; }
  h2, .table figcaption, thead { break-after: avoid; } tr, .picture { break-inside: avoid; }
  .box { overflow: visible; background: none; } tbody tr > * { white-space: normal; min-width: 0; }
  table { font-size: 8pt; } thead th { white-space: pre-line; } th, td { padding: .2rem .4rem; } }
"""


class Strong(str):
    """Text that stands out, such as the best number of a column."""


@dataclass(frozen=True)
class Table:
    """Cells of text; the first column names the row, the others are numbers and end on the right.

    ``caption`` stands above and says what the numbers are, ``note`` below what to know about them.
    A header breaks into lines where it has line breaks.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"A row must have a cell for each of the {len(self.header)} columns; "
                    f"got {len(row)}: {list(row)}."
                )


@dataclass(frozen=True)
class Picture:
    """A PNG file; ``alt`` says what it shows to those who cannot see it."""

    png: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Text:
    """Paragraphs."""

    paragraphs: Sequence[str]


@dataclass(frozen=True)
class Thumbnail:
    """A small JPEG with a line or two of text; ``alt`` says what it shows."""

    jpeg: bytes
    alt: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    """Small pictures side by side."""

    thumbnails: Sequence[Thumbnail]
    caption: str = ""


@dataclass(frozen=True)
class Bars:
    """A bar per name, as long as its share of the longest, with the number in words."""

    bars: Sequence[tuple[str, float, str]]
    caption: str = ""


Part = Table | Picture | Text | Gallery | Bars


@dataclass(frozen=True)
class Section:
    """What stands under one heading."""

    title: str
    parts: Sequence[Part]


def page(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """The whole report, with a table of contents if it has more than two sections."""
    names = [(f"section-{number}", section) for number, section in enumerate(sections, start=1)]
    links = "".join(f'<li><a href="#{name}">{_html(part.title)}</a></li>' for name, part in names)
    body = [f"<h1>{_html(title)}</h1>"]
    if subtitle:
        body.append(f'<p class="soft">{_html(subtitle)}</p>')
    if len(sections) > 2:
        body.append(f'<nav aria-label="Contents"><ol>{links}</ol></nav>')
    for name, section in names:
        parts = "\n".join(_part(part) for part in section.parts)
        body.append(f'<section id="{name}">\n<h2>{_html(section.title)}</h2>\n{parts}\n</section>')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _html(text: str) -> str:
    return f"<strong>{escape(text)}</strong>" if isinstance(text, Strong) else escape(text)


def _part(part: Part) -> str:
    match part:
        case Table():
            return _table(part)
        case Picture():
            source = f"data:image/png;base64,{base64.b64encode(part.png).decode()}"
            image = f'<img src="{source}" alt="{escape(part.alt)}">'
            caption = f"<figcaption>{_html(part.caption)}</figcaption>"
            return f'<figure class="picture">{image}{caption}</figure>'
        case Gallery():
            return _gallery(part)
        case Bars():
            return _bars(part)
        case Text():
            return "\n".join(f"<p>{_html(paragraph)}</p>" for paragraph in part.paragraphs)


def _gallery(gallery: Gallery) -> str:
    pictures = "".join(
        f'<li><img src="data:image/jpeg;base64,{base64.b64encode(one.jpeg).decode()}" '
        f'alt="{escape(one.alt)}"><span>{_html(one.caption)}</span></li>'
        for one in gallery.thumbnails
    )
    caption = f"<figcaption>{_html(gallery.caption)}</figcaption>" if gallery.caption else ""
    return f'<figure class="gallery">{caption}<ul>{pictures}</ul></figure>'


def _bars(bars: Bars) -> str:
    most = max((value for _, value, _ in bars.bars), default=0) or 1
    lines = "".join(
        f'<div class="bar"><span>{_html(name)}</span><i><b style="width:{100 * value / most:.1f}%">'
        f"</b></i><span>{_html(words)}</span></div>"
        for name, value, words in bars.bars
    )
    caption = f"<figcaption>{_html(bars.caption)}</figcaption>" if bars.caption else ""
    return f'<figure class="bars">{caption}{lines}</figure>'


def _table(table: Table) -> str:
    """The table in a box that scrolls, also with the keyboard, between its caption and its note."""
    prose = {i for row in table.rows for i, cell in enumerate(row) if len(cell) > _PROSE}
    head = _row(table.header, prose, first="col", others='th scope="col"')
    lines = "\n".join(_row(row, prose, first="row", others="td") for row in table.rows)
    caption = f"<figcaption>{_html(table.caption)}</figcaption>" if table.caption else ""
    note = f'<p class="note soft">{_html(table.note)}</p>' if table.note else ""
    label = escape(table.caption or "Table")
    return (
        f'<figure class="table">{caption}<div class="box" role="region" aria-label="{label}" '
        f'tabindex="0"><table>\n<thead>{head}</thead>\n<tbody>{lines}</tbody>\n</table></div>'
        f"{note}</figure>"
    )


def _row(cells: Sequence[str], prose: set[int], *, first: str, others: str) -> str:
    line = ""
    for i, cell in enumerate(cells):
        tag = others if i else f'th scope="{first}"'
        kind = ' class="prose"' if i in prose else ""
        line += f"<{tag}{kind}>{_html(cell)}</{tag[:2]}>"
    return f"<tr>{line}</tr>"
