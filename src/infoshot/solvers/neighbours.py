r"""Nearest neighbours, and samples averaged with theirs, which reduces noise.

.. math:: x_i \propto (1 - s) z_i + s \sum_{j \in N(i)} g_{ij} z_j, \qquad
          g_{ij} \propto \exp\left(-\frac{\tau}{2} \|z_i - z_j\|^2\right)

over the k nearest other samples N(i); each result keeps the length of its sample. Up to 20,000
samples the neighbours are searched among all of them, above that among 8,192 candidates for each
sample, see ``cells.py``. Cost: 2 n n d operations, or 2 n 8,192 d, block by block, so that the
matrix of all pairs is never stored for many samples. From 1,024 samples on it is little more than
half of that: the similarities of two blocks of samples serve both of them. For fewer it is twice
that: a product with a mostly zero matrix is then faster than gathering.
"""

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from infoshot.core.parallel import map_blocks
from infoshot.solvers.cells import group_samples
from infoshot.solvers.objective import inverse_lengths

_MOST_SEARCHED = 20_000  # samples that are all candidates
_CANDIDATES = 8192  # for each sample, if there are more
TEMPERATURE = 20.0  # tau
_BLOCK = 2**24  # similarities at a time
_MANY = 1024  # from this many candidates on, neighbours are gathered
_PARTS = 8  # of all samples, whose similarities are computed pair by pair


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest candidates of each sample, in any order.

    Parameters
    ----------
    nearness
        Product with the candidate less half the squared length of the candidate, which is larger
        for nearer ones, shape ``(task, n, neighbour)``.
    numbers
        Numbers of the candidates, the same shape.
    """

    nearness: Tensor
    numbers: Tensor

    def shares(self) -> Tensor:
        """Weights of the neighbours, which sum to one."""
        return torch.softmax(self.nearness * TEMPERATURE, dim=-1)


def find_neighbours(z: Tensor, n_neighbours: int) -> Nearest:
    """Find the nearest other samples of each of the samples ``(task, n, dim)``."""
    n = z.shape[1]
    if n > _MOST_SEARCHED:
        return _join([_nearest_by_cells(samples, n_neighbours) for samples in z], dim=0)
    if n >= _MANY:
        return _nearest_by_pairs(z, n_neighbours)
    return _nearest_by_rows(z, z, n_neighbours, others_only=True)


def find_nearest(z: Tensor, candidates: Tensor, n_nearest: int) -> Nearest:
    """Find the nearest candidates, ``(task, m, dim)``, of each sample, ``(task, n, dim)``."""
    return _nearest_by_rows(z, candidates, n_nearest, others_only=False)


def average_with_neighbours(z: Tensor, near: Nearest, share: float) -> Tensor:
    """Average samples, ``(task, n, dim)``, with their neighbours, whose weight is ``share``."""
    means = _gather_means(near, z) if z.shape[1] >= _MANY else _multiply_means(near, z)
    mixed = means.mul_(share).add_(z, alpha=1 - share)
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return mixed.mul_(inverse_lengths(mixed).unsqueeze(-1)).mul_(length)


def similarities_at_a_time(n: int) -> int:
    """Count the similarities that are in memory at once for ``n`` samples."""
    return min(n * n, _BLOCK)


def _nearest_by_rows(z: Tensor, candidates: Tensor, most: int, *, others_only: bool) -> Nearest:
    """Nearest candidates, from all products of some samples at a time."""
    (n_tasks, n, _), n_candidates = z.shape, candidates.shape[1]
    n_rows = max(1, _BLOCK // (n_tasks * n_candidates))
    half_norm = _half_norm(candidates)

    def of_rows(first: int) -> Nearest:
        nearness = torch.bmm(z[:, first : first + n_rows], candidates.mT).sub_(half_norm)
        if others_only:
            nearness.diagonal(first, 1, 2).fill_(-math.inf)
        return _nearest(nearness, min(most, n_candidates - others_only))

    return _join(map_blocks(of_rows, range(0, n, n_rows)), dim=1)


def _nearest_by_pairs(z: Tensor, n_neighbours: int) -> Nearest:
    """Nearest other samples of each; the products of two parts of the samples serve both."""
    n_tasks, n, _ = z.shape
    most = min(n_neighbours, n - 1)
    size = min(-(-n // _PARTS), max(1, math.isqrt(_BLOCK // n_tasks)))
    half_norm = _half_norm(z)

    def of_pair(pair: tuple[int, int]) -> dict[int, Nearest]:
        one, other = pair
        products = torch.bmm(z[:, one : one + size], z[:, other : other + size].mT)
        nearness = products - half_norm[:, :, other : other + size]
        if one == other:
            nearness.diagonal(0, 1, 2).fill_(-math.inf)
            return {one: _nearest(nearness, most, other)}
        reverse = products.mT - half_norm[:, :, one : one + size]
        return {
            one: _nearest(nearness, most, other),
            other: _nearest(reverse, most, one),
        }

    starts = range(0, n, size)
    pairs = map_blocks(of_pair, list(combinations_with_replacement(starts, 2)))
    nearest = [_nearest_of([p[start] for p in pairs if start in p], most) for start in starts]
    return _join(nearest, dim=1)


def _nearest_by_cells(z: Tensor, n_neighbours: int) -> Nearest:
    """Nearest other samples of each sample of one task, ``(n, dim)``, among nearby cells."""
    cells = group_samples(z, n_neighbours)
    n_rows = _BLOCK // _CANDIDATES
    blocks = [
        (cell, first)
        for cell in range(len(cells.near))
        for first in range(0, cells.edges[cell + 1] - cells.edges[cell], n_rows)
    ]
    most = min(n_neighbours, _CANDIDATES - 1, len(z) - 1)
    nearness = z.new_empty(1, len(z), most)
    numbers = torch.empty_like(nearness, dtype=torch.int64)

    def write_block(block: tuple[int, int]) -> None:
        cell, first = block
        start, end = cells.edges[cell] + first, cells.edges[cell + 1]
        rows = cells.order[start : min(start + n_rows, end)]
        # The samples of the cell are the first candidates, in the same order.
        chosen = cells.candidates(cell, _CANDIDATES)
        candidates = z[chosen].unsqueeze(0)
        products = torch.bmm(z[rows].unsqueeze(0), candidates.mT).sub_(_half_norm(candidates))
        products.diagonal(first, 1, 2).fill_(-math.inf)
        near = _nearest(products, most)
        nearness[0, rows], numbers[0, rows] = near.nearness[0], chosen[near.numbers[0]]

    map_blocks(write_block, blocks)
    return Nearest(nearness, numbers)


def _nearest(nearness: Tensor, most: int, first: int = 0) -> Nearest:
    """Choose the nearest candidates of each sample; their numbers start at ``first``."""
    values, numbers = nearness.topk(min(most, nearness.shape[2]), sorted=False)
    return Nearest(values, numbers + first)


def _nearest_of(parts: list[Nearest], most: int) -> Nearest:
    """Choose the nearest of those that were found among several parts of the candidates."""
    found = _join(parts, dim=2)
    chosen = _nearest(found.nearness, most)
    return Nearest(chosen.nearness, found.numbers.gather(2, chosen.numbers))


def _join(parts: list[Nearest], dim: int) -> Nearest:
    return Nearest(
        torch.cat([part.nearness for part in parts], dim=dim),
        torch.cat([part.numbers for part in parts], dim=dim),
    )


def _gather_means(near: Nearest, z: Tensor) -> Tensor:
    """Weighted means of the neighbours, ``(task, n, dim)``, gathered one by one."""
    means = [
        embedding_bag(numbers, samples, mode="sum", per_sample_weights=weights)
        for numbers, samples, weights in zip(near.numbers, z, near.shares(), strict=True)
    ]
    return torch.stack(means)


def _multiply_means(near: Nearest, z: Tensor) -> Tensor:
    """Weighted means of the neighbours, ``(task, n, dim)``, as products of matrices."""
    n_tasks, n, _ = z.shape
    n_rows = max(1, _BLOCK // (n_tasks * n))
    shares = near.shares()

    def of_rows(first: int) -> Tensor:
        rows = slice(first, first + n_rows)
        matrix = z.new_zeros(n_tasks, shares[:, rows].shape[1], n)
        return torch.bmm(matrix.scatter_(2, near.numbers[:, rows], shares[:, rows]), z)

    return torch.cat(map_blocks(of_rows, range(0, n, n_rows)), dim=1)


def _half_norm(z: Tensor) -> Tensor:
    """Half the squared length of each sample, ``(task, 1, n)``."""
    squares: Tensor = torch.linalg.vecdot(z, z)
    return squares.mul_(0.5).unsqueeze(1)
