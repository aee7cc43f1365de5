"""Centres of many rows, found by k-means over some of them, by one or several processes.

In memory TIM-auto averages queries with their nearest queries, which here may be in any file. The
nearest of a limited number of centres do as well: each is a mean of similar rows.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from infoshot.solvers.sharded.rows import Rows

_STEPS = 3  # more change accuracies by less than 0.2 points


def find_centres(
    rows: Rows, start: Tensor, sum_over_processes: Callable[[Tensor], Tensor]
) -> Tensor:
    """Find centres of prepared rows.

    Sums are in float64 and centres are rounded to float32, so that hardly anything depends on how
    rows are divided into chunks and processes.

    Parameters
    ----------
    rows
        Rows of this process that the centres are means of.
    start
        Rows to start from, prepared, shape ``(centre, dim)``, float32, the same in all processes.
    sum_over_processes
        Sums a tensor over all processes.
    """
    centres = start
    n_centres, dim = centres.shape
    for _ in range(_STEPS):
        sums = torch.zeros(n_centres, dim + 1, dtype=torch.float64, device=rows.device)
        for _, (z, nearest) in rows.map(partial(_assign, rows, centres.to(rows.device))):
            sums[:, :-1].index_add_(0, nearest, z.double())
            sums[:, -1] += nearest.bincount(minlength=n_centres)
        sums = sum_over_processes(sums).cpu()
        counts = sums[:, -1:]
        centres = (sums[:, :-1] / counts).float().where(counts > 0, centres)
    return centres


def _assign(rows: Rows, centres: Tensor, z: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Prepared rows, and the number of the centre nearest to each."""
    prepared = rows.preparation.apply(z, scales)
    half_norm = torch.linalg.vecdot(centres, centres).mul_(0.5)
    return prepared, torch.addmm(half_norm, prepared, centres.T, beta=-1).argmax(1)
