"""Results as a LaTeX table."""

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from infoshot.core.text import visible
from infoshot.core.types import ResultRow

_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"$\mid$",
        "<": "$<$",
        ">": "$>$",
        "[": "{[}",  # the command that ends a line would take it as its argument
        "*": "{*}",
        '"': r"\symbol{34}",  # babel redefines the character in some languages
        "±": r"$\pm$",
        "−": "$-$",  # noqa: RUF001 - the minus sign of Unicode
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)
_MINUS = re.compile(r"(?<![\w)\]}-])-(?=\.?\d)|(?<=\de)-(?=\d)")  # of a number, not a hyphen
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
        *(f"% {_one_line(note)}" for note in dict.fromkeys(row.note for row in rows if row.note)),
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        *_header(columns),
        "\\midrule",
    ]
    for method in methods:
        line = [latex_text(method)]
        for column in columns:
            row = cells.get((method, column))
            line.append(_cell(row, best[column]) if row else "--")
        lines.append(_line(line))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def latex_text(text: str) -> str:
    r"""Escape any text for LaTeX, outside of formulas; minus signs of numbers become formulas.

    Letters beyond ASCII stay as they are, as LaTeX reads UTF-8. White space becomes single spaces,
    and control characters are shown as ``\x1b``.

    Examples
    --------
    >>> print(latex_text("50% of C:\\a_b, change -1.5 ± 0.2"))
    50\% of C:\textbackslash{}a\_b, change $-$1.5 $\pm$ 0.2
    """
    escaped = _MINUS.sub("−", _one_line(text)).translate(_ESCAPES)  # noqa: RUF001
    return re.sub("-(?=-)", "-{}", escaped)  # two hyphens in a row would become a dash


def _header(columns: Sequence[_Column]) -> list[str]:
    """Two lines of header with rules: ways and regime, then shots."""
    groups, rules, first = [""], [], 2
    for (ways, regime), members in groupby(columns, key=lambda column: column[:2]):
        n_members = len(list(members))
        groups.append(f"\\multicolumn{{{n_members}}}{{c}}{{{ways}-way, {latex_text(regime)}}}")
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


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))
