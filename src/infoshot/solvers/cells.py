r"""Cells: samples grouped by their nearest centre, so that neighbours are searched nearby.

The neighbours of n samples among all of them take 2 n n d operations. With cells they are searched
among a fixed number of candidates: the cell of the sample, then the cells whose centres are nearest
to that of its own, until there are enough. A neighbour in a cell farther away is missed.

The centres start as random samples, and a few steps of k-means on a part of the samples move them.
There is one centre for a fixed number of samples, so the cost of grouping is 2 n n d / 512. All
random choices are the same in every run, and results do not depend on the number of threads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from infoshot.core.parallel import chunk_ranges, map_blocks
from infoshot.core.rng import random_bits

CELL_SIZE = 512  # samples per cell, on average
_SEED, _STREAM = 0, 0
_KMEANS_STEPS, _SAMPLES_PER_CENTRE = 3, 64
_NEAREST_CELLS = 64  # among which candidates are taken, at least
_BLOCK = 2**24  # similarities at a time


@dataclass(frozen=True, eq=False)
class Cells:
    """Samples in the order of their cells; none of the cells is empty."""

    order: Tensor  # numbers of the samples, cell by cell, at random within a cell, [n]
    edges: list[int]  # where each cell starts in ``order``, and the end
    near: list[list[int]]  # for each cell, itself and the nearest others, nearest first

    def candidates(self, cell: int, most: int) -> Tensor:
        """Return the numbers of the samples of a cell, then those of the cells nearest to it."""
        parts, n_found = [], 0
        for other in self.near[cell]:
            parts.append(self.order[self.edges[other] : self.edges[other + 1]])
            n_found += len(parts[-1])
            if n_found >= most:
                break
        return torch.cat(parts)[:most]


def group_samples(z: Tensor, n_neighbours: int) -> Cells:
    """Group samples, ``(n, dim)``; each cell has candidates for this many neighbours."""
    n = len(z)
    bits = random_bits(_SEED, _STREAM, torch.zeros(1, dtype=torch.int64), (n,))[0]
    shuffled = bits.argsort(stable=True).to(z.device)
    n_centres = max(2, n // CELL_SIZE)
    some = z[shuffled[: n_centres * _SAMPLES_PER_CENTRE]]
    centres = some[:n_centres]
    for _ in range(_KMEANS_STEPS):
        order, counts = _sort_by_cell(_nearest(some, centres), n_centres)
        means = embedding_bag(order, some, counts.cumsum(0) - counts, mode="mean")
        centres = means.where(counts.unsqueeze(1) > 0, centres)
    order, counts = _sort_by_cell(_nearest(z, centres)[shuffled], n_centres)
    used = counts > 0
    return Cells(
        shuffled[order],
        [0, *counts[used].cumsum(0).tolist()],
        _nearest_cells(centres[used], max(_NEAREST_CELLS, n_neighbours + 1)),
    )


def _nearest(z: Tensor, centres: Tensor) -> Tensor:
    """Number of the centre nearest to each sample."""
    half_norm = torch.linalg.vecdot(centres, centres).mul_(0.5)

    def of_chunk(chunk: range) -> Tensor:
        scores = torch.addmm(half_norm, z[chunk.start : chunk.stop], centres.T, beta=-1)
        return scores.argmax(1)

    return torch.cat(map_blocks(of_chunk, chunk_ranges(len(z), max(1, _BLOCK // len(centres)))))


def _sort_by_cell(cell: Tensor, n_cells: int) -> tuple[Tensor, Tensor]:
    """Order that sorts samples by their cells, and the number of samples of each cell."""
    return cell.argsort(stable=True), torch.bincount(cell, minlength=n_cells)


def _nearest_cells(centres: Tensor, n_wanted: int) -> list[list[int]]:
    """For each centre, its own number and those of the nearest others."""
    half_norm = torch.linalg.vecdot(centres, centres).mul_(0.5)
    near: list[list[int]] = []
    for chunk in chunk_ranges(len(centres), max(1, _BLOCK // len(centres))):
        scores = torch.addmm(half_norm, centres[chunk.start : chunk.stop], centres.T, beta=-1)
        scores.diagonal(chunk.start).fill_(torch.inf)
        near += scores.topk(min(n_wanted, len(centres))).indices.tolist()
    return near
