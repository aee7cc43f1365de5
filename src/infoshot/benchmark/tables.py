"""Result rows as tables for people."""

import math
from collections.abc import Sequence

from infoshot.types import ResultRow

Cells = list[list[str]]


def result_table(rows: Sequence[ResultRow]) -> tuple[list[str], Cells]:
    """Header and cells: a line per method and number of ways, a column pair per number of shots."""
    shots = sorted({row.shots for row in rows})
    header = ["method", "ways", "tasks"]
    for shot in shots:
        header += [f"{shot}-shot", "ms/task"]
    cells: Cells = []
    for method, ways in dict.fromkeys((row.method, row.ways) for row in rows):
        of_line = {row.shots: row for row in rows if (row.method, row.ways) == (method, ways)}
        line = [method, str(ways), str(next(iter(of_line.values())).tasks)]
        for shot in shots:
            row = of_line[shot]
            interval = "" if math.isnan(row.ci95) else f" ± {row.ci95:.2f}"
            line += [f"{row.mean:.2f}{interval}", f"{row.per_task_ms:.3g}"]
        cells.append(line)
    return header, cells
