"""The tables of a report as text: for the page, as Markdown and as LaTeX."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from infoshot.benchmark.latex import latex_text
from infoshot.report.page import Strong, Table
from infoshot.reproduction.paper import BACKBONES
from infoshot.reproduction.paper_tables import NOTE, Line, Number, PaperTable

TEX_HEADER = "% needs \\usepackage{booktabs}\n"
_DASH = "--"


def as_page_table(table: PaperTable) -> Table:
    """Return a table of the paper for the page, with the best numbers in bold."""
    ablation = table.experiment == "table4"  # its headings name the backbone
    header = ["loss"] if ablation else ["method", "backbone"]
    for column in table.columns:
        top = column.top.replace("-ImageNet", "-\nImageNet")
        header += [f"{top}\n{column.shots}-shot", "paper"]
    rows: list[list[str]] = []
    headings: dict[int, str] = {}
    best = table.best
    for block in table.blocks:
        if block.title:
            headings[len(rows)] = block.title
        for line in block.lines:
            cells = [table.label(line).replace(", ", "\n")]
            if not ablation:
                cells.append(_backbone(line))
            for column in table.columns:
                number = table.numbers[line, column]
                cells += [
                    _strong(_here(number), (line, column, "here") in best),
                    _strong(number.printed, (line, column, "paper") in best),
                ]
            rows.append(cells)
    return Table(header, rows, table.caption, NOTE, headings)


def _here(number: Number) -> str:
    if number.measured is None:
        return number.missing
    lines = filter(None, (number.measured.text, *number.remark.split(", ")))
    return "\n".join(lines)


def _strong(text: str, is_best: bool) -> str:
    return Strong(text) if is_best else text


def _backbone(line: Line) -> str:
    names = (BACKBONES.get(line.backbone, line.backbone), line.recipe)
    return "\n".join(filter(None, names))


def to_markdown(table: Table) -> str:
    """Format a table as Markdown; bold numbers stay bold."""
    lines = [table.header, ["---"] * len(table.header)]
    for number, row in enumerate(table.rows):
        if number in table.headings:
            lines.append([f"**{table.headings[number]}**", *[""] * (len(table.header) - 1)])
        lines.append([f"**{cell}**" if isinstance(cell, Strong) else cell for cell in row])
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    body = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return "\n\n".join(part for part in (f"**{table.caption}**", body, table.note) if part) + "\n"


def to_latex(table: Table) -> str:
    """Format a table as LaTeX with booktabs; columns of sentences wrap, empty cells are dashes."""
    prose = table.prose_columns
    width = 0.8 / max(1, len(prose))
    kinds = [
        f"p{{{width:.2f}\\linewidth}}" if i in prose else "r" if i else "l"
        for i in range(len(table.header))
    ]
    rows: list[list[str]] = []
    for number, row in enumerate(table.rows):
        if number in table.headings:
            rows.append(_heading(latex_text(table.headings[number]), len(table.header)))
        rows.append([_escape(cell) for cell in row])
    header = [latex_text(cell) for cell in table.header]
    return _float(_caption(table.caption, table.note), "".join(kinds), [header], rows)


def _escape(cell: str) -> str:
    text = latex_text(cell)
    if text in ("", "-"):
        return _DASH
    return rf"\textbf{{{text}}}" if isinstance(cell, Strong) else text


def _heading(title: str, n_columns: int) -> list[str]:
    return [rf"\multicolumn{{{n_columns}}}{{l}}{{\emph{{{title}}}}}"]


def _caption(title: str, note: str) -> str:
    return " ".join(filter(None, (f"{latex_text(title)}.", latex_text(note))))


def paper_table_to_latex(table: PaperTable) -> str:
    """Format a table of the paper as LaTeX, with the best numbers in bold and dashes for none."""
    n_columns = 2 + 2 * len(table.columns)
    tops = [
        rf"\multicolumn{{{2 * len(list(members))}}}{{c}}{{{latex_text(top)}}}"
        for top, members in groupby(column.top for column in table.columns)
    ]
    shots = [rf"\multicolumn{{2}}{{c}}{{{column.shots}-shot}}" for column in table.columns]
    first = "loss" if table.experiment == "table4" else "method"
    header = [
        ["", "", *tops],
        ["", "", *shots],
        [first, "backbone", *["here", "paper"] * len(table.columns)],
    ]
    best = table.best
    lines: list[list[str]] = []
    for block in table.blocks:
        if block.title:
            lines.append(_heading(_parameters(latex_text(block.title)), n_columns))
        for line in block.lines:
            cells = [_loss(table.label(line)), latex_text(_backbone(line))]
            for column in table.columns:
                number = table.numbers[line, column]
                cells += [
                    _math(number, (line, column, "here") in best),
                    _escape(_strong(number.printed, (line, column, "paper") in best)),
                ]
            lines.append(cells)
    return _float(_caption(table.caption, NOTE), "ll" + "r" * (n_columns - 2), header, lines)


def _float(
    caption: str, kinds: str, header: Iterable[Sequence[str]], rows: Iterable[Sequence[str]]
) -> str:
    """Return a floating table; lines above headings separate the blocks."""
    body = []
    for number, line in enumerate(rows):
        if number and len(line) == 1:
            body.append(r"\midrule")
        body.append(" & ".join(line) + r" \\")
    return "\n".join(
        (
            r"\begin{table*}\centering\scriptsize\setlength{\tabcolsep}{3pt}",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{kinds}}}",
            r"\toprule",
            *(" & ".join(line) + r" \\" for line in header),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}\end{table*}",
            "",
        )
    )


def _math(number: Number, is_best: bool) -> str:
    """Return a measured number as a formula, with its spread in small type."""
    if number.measured is None:
        return _DASH
    mean, _, interval = number.measured.text.partition(" ± ")
    mean = rf"\mathbf{{{mean}}}" if is_best else mean
    formula = rf"${mean} \pm {interval}$" if interval else f"${mean}$"
    return formula + (rf" {{\tiny ({latex_text(number.remark)})}}" if number.remark else "")


def _loss(text: str) -> str:
    """Return a loss of the ablation as a formula; other text is escaped."""
    if not re.match(r"CE\b", text):
        return latex_text(text)
    terms, comma, remark = text.partition(",")
    formula = terms.replace("CE", r"\mathrm{CE}").replace("|", r"\mid ")
    return f"${formula}${comma} {latex_text(remark)}".rstrip()


def _parameters(text: str) -> str:
    return text.replace(r"\{W\}", r"$\{W\}$").replace(r"\{phi, W\}", r"$\{\phi, W\}$")
