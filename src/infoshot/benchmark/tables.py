"""Result rows as tables for people."""

import math
from collections.abc import Sequence

from infoshot.core.types import ResultRow

Cells = list[list[str]]


def result_table(rows: Sequence[ResultRow]) -> tuple[list[str], Cells]:
    """Header and cells: a line per method and number of ways, some columns per number of shots."""
    shots = sorted({row.shots for row in rows})
    open_set = not all(math.isnan(row.auroc) for row in rows)
    header = ["method", "assumes", "ways", "tasks"]
    for shot in shots:
        header += [f"{shot}-shot", *(["AUROC"] if open_set else []), "ms/task"]
    cells: Cells = []
    for method, ways in dict.fromkeys((row.method, row.ways) for row in rows):
        of_line = {row.shots: row for row in rows if (row.method, row.ways) == (method, ways)}
        first = next(iter(of_line.values()))
        line = [method, ", ".join(first.assumes) or "nothing", str(ways), str(first.tasks)]
        for shot in shots:
            row = of_line[shot]
            line.append(with_interval(row.mean, row.ci95))
            if open_set:
                line.append(with_interval(row.auroc, row.auroc_ci95))
            line.append(f"{row.per_task_ms:.3g}")
        cells.append(line)
    return header, cells


def with_interval(mean: float, half_width: float) -> str:
    """Return a mean with its interval; the interval of one task is not known."""
    return f"{mean:.2f}" + ("" if math.isnan(half_width) else f" ± {half_width:.2f}")
