r"""Smoothing: samples averaged with their nearest neighbours, which reduces noise.

.. math:: x_i \propto (1 - s) z_i + s \sum_{j \in N(i)} g_{ij} z_j, \qquad
          g_{ij} \propto \exp\left(-\frac{\tau}{2} \|z_i - z_j\|^2\right)

over the k nearest other samples N(i); each result keeps the length of its sample. Up to 20,000
samples the neighbours are searched among all of them, above that among 8,192 candidates for each
sample, see ``cells.py``. Cost: 2 n n d operations, or 2 n 8,192 d, block by block, so that the
matrix of all pairs is never stored for many samples. For few samples it is twice that: a product
with a mostly zero matrix is then faster than gathering.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from infoshot.core.parallel import map_blocks
from infoshot.solvers.cells import group_samples
from infoshot.solvers.objective import inverse_lengths

_MOST_SEARCHED = 20_000  # samples that are all candidates
_CANDIDATES = 8192  # for each sample, if there are more
_TEMPERATURE = 20.0
_BLOCK = 2**24  # similarities at a time
_MANY = 1024  # from this many candidates on, neighbours are gathered


def average_with_neighbours(z: Tensor, share: float, n_neighbours: int) -> Tensor:
    """Average samples, ``(task, n, dim)``, with their neighbours, whose weight is ``share``."""
    if z.shape[1] <= _MOST_SEARCHED:
        means = _means_among_all(z, n_neighbours)
    else:
        means = torch.stack([_means_by_cells(samples, n_neighbours) for samples in z])
    mixed = means.mul_(share).add_(z, alpha=1 - share)
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return mixed.mul_(inverse_lengths(mixed).unsqueeze(-1)).mul_(length)


def similarities_at_a_time(n: int) -> int:
    """Count the similarities that are in memory at once for ``n`` samples."""
    return min(n * n, _BLOCK)


def _means_among_all(z: Tensor, n_neighbours: int) -> Tensor:
    """Weighted means of the neighbours of each sample, ``(task, n, dim)``."""
    n_tasks, n, _ = z.shape
    n_rows = max(1, _BLOCK // (n_tasks * n))
    half_norm = _half_norm(z)

    def of_rows(first: int) -> Tensor:
        return _means(z[:, first : first + n_rows], first, z, half_norm, n_neighbours)

    return torch.cat(map_blocks(of_rows, range(0, n, n_rows)), dim=1)


def _means_by_cells(z: Tensor, n_neighbours: int) -> Tensor:
    """Weighted means of the neighbours of each sample of one task, ``(n, dim)``."""
    cells = group_samples(z, n_neighbours)
    n_rows = _BLOCK // _CANDIDATES
    blocks = [
        (cell, first)
        for cell in range(len(cells.near))
        for first in range(0, cells.edges[cell + 1] - cells.edges[cell], n_rows)
    ]
    means = torch.empty_like(z)

    def write_block(block: tuple[int, int]) -> None:
        cell, first = block
        start, end = cells.edges[cell] + first, cells.edges[cell + 1]
        rows = cells.order[start : min(start + n_rows, end)]
        # The samples of the cell are the first candidates, in the same order.
        candidates = z[cells.candidates(cell, _CANDIDATES)].unsqueeze(0)
        some = z[rows].unsqueeze(0)
        found = _means(some, first, candidates, _half_norm(candidates), n_neighbours)
        means[rows] = found[0]

    map_blocks(write_block, blocks)
    return means


def _half_norm(z: Tensor) -> Tensor:
    """Half the squared length of each sample, ``(task, 1, n)``."""
    squares: Tensor = torch.linalg.vecdot(z, z)
    return squares.mul_(0.5).unsqueeze(1)


def _means(
    z: Tensor, first: int, candidates: Tensor, half_norm: Tensor, n_neighbours: int
) -> Tensor:
    """Weighted means of the nearest candidates; row i is itself candidate ``first + i``."""
    nearness = torch.bmm(z, candidates.mT).sub_(half_norm).mul_(_TEMPERATURE)
    nearness.diagonal(first, 1, 2).fill_(-math.inf)
    kept = nearness.topk(min(n_neighbours, candidates.shape[1] - 1), sorted=False)
    share = torch.softmax(kept.values, dim=-1)
    if candidates.shape[1] < _MANY:
        return torch.bmm(torch.zeros_like(nearness).scatter_(2, kept.indices, share), candidates)
    means = [
        embedding_bag(indices, samples, mode="sum", per_sample_weights=weights)
        for indices, samples, weights in zip(kept.indices, candidates, share, strict=True)
    ]
    return torch.stack(means)
