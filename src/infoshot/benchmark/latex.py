"""Results as a LaTeX table."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from infoshot.core.types import ResultRow

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_Column = tuple[int, str, int]  # ways, regime, shots


def latex_table(rows: Sequence[ResultRow], without_results: Iterable[str] = ()) -> str:
    """Format rows as a ``tabular`` for the package booktabs, with a line per method.

    There is a column per number of ways, regime and number of shots, with accuracy in percent and
    its 95 % interval. The best mean of a column is bold, together with means that print the same.
    Cells without a result are dashes.

    Parameters
    ----------
    rows
        The results.
    without_results
        Names of further methods, such as skipped ones, that get a line of dashes.
    """
    columns = list(dict.fromkeys((row.ways, row.regime, row.shots) for row in rows))
    methods = list(dict.fromkeys([*(row.method for row in rows), *without_results]))
    cells = {(row.method, (row.ways, row.regime, row.shots)): row for row in rows}
    best = {
        column: max(f"{row.mean:6.2f}" for (_, where), row in cells.items() if where == column)
        for column in columns
    }
    lines = [
        "% needs \\usepackage{booktabs}; accuracy in percent with 95% interval",
        *(f"% {note}" for note in dict.fromkeys(row.note for row in rows if row.note)),
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        *_header(columns),
        "\\midrule",
    ]
    for method in methods:
        line = [_escape(method)]
        for column in columns:
            row = cells.get((method, column))
            line.append(_cell(row, best[column]) if row else "--")
        lines.append(_line(line))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def _header(columns: Sequence[_Column]) -> list[str]:
    """Two lines of header with rules: ways and regime, then shots."""
    groups, rules, first = [""], [], 2
    for (ways, regime), members in groupby(columns, key=lambda column: column[:2]):
        n_members = len(list(members))
        groups.append(f"\\multicolumn{{{n_members}}}{{c}}{{{ways}-way, {_escape(regime)}}}")
        rules.append(f"\\cmidrule(lr){{{first}-{first + n_members - 1}}}")
        first += n_members
    shots = [f"{shots}-shot" for _, _, shots in columns]
    return [_line(groups), " ".join(rules), _line(["method", *shots])]


def _cell(row: ResultRow, best: str) -> str:
    mean = f"{row.mean:.2f}"
    if f"{row.mean:6.2f}" == best:
        mean = f"\\mathbf{{{mean}}}"
    interval = "" if math.isnan(row.ci95) else f" \\pm {row.ci95:.2f}"
    return f"${mean}{interval}$"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)
