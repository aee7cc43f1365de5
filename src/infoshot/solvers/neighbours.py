r"""Smoothing: samples averaged with their nearest neighbours, which reduces noise.

.. math:: x_i \propto (1 - s) z_i + s \sum_{j \in N(i)} g_{ij} z_j, \qquad
          g_{ij} \propto \exp\left(-\frac{\tau}{2} \|z_i - z_j\|^2\right)

over the k nearest other samples N(i); each result keeps the length of its sample. Cost: 2 n n d
operations, block by block, so that the matrix of all pairs is never stored for many samples. For
few samples it is twice that: a product with a mostly zero matrix is then faster than gathering.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from infoshot.solvers.objective import inverse_lengths

_TEMPERATURE = 20.0
_BLOCK = 2**24  # similarities at a time
_MANY = 1024  # from this many samples on, neighbours are gathered


def average_with_neighbours(z: Tensor, share: float, n_neighbours: int) -> Tensor:
    """Average samples, ``(task, n, dim)``, with their neighbours, whose weight is ``share``."""
    n_tasks, n, _ = z.shape
    n_rows = max(1, _BLOCK // (n_tasks * n))
    half_norm = torch.linalg.vecdot(z, z).mul_(0.5).unsqueeze(1)
    blocks = [_means(z, half_norm, first, n_rows, n_neighbours) for first in range(0, n, n_rows)]
    mixed = torch.cat(blocks, dim=1).mul_(share).add_(z, alpha=1 - share)
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return mixed.mul_(inverse_lengths(mixed).unsqueeze(-1)).mul_(length)


def similarities_at_a_time(n: int) -> int:
    """Count the similarities that are in memory at once for ``n`` samples."""
    return min(n * n, _BLOCK)


def _means(z: Tensor, half_norm: Tensor, first: int, n_rows: int, n_neighbours: int) -> Tensor:
    """Weighted means of the neighbours of some samples, ``(task, row, dim)``."""
    nearness = torch.bmm(z[:, first : first + n_rows], z.mT).sub_(half_norm).mul_(_TEMPERATURE)
    nearness.diagonal(first, 1, 2).fill_(-math.inf)
    kept = nearness.topk(min(n_neighbours, z.shape[1] - 1), sorted=False)
    share = torch.softmax(kept.values, dim=-1)
    if z.shape[1] < _MANY:
        return torch.bmm(torch.zeros_like(nearness).scatter_(2, kept.indices, share), z)
    means = [
        embedding_bag(indices, samples, mode="sum", per_sample_weights=weights)
        for indices, samples, weights in zip(kept.indices, z, share, strict=True)
    ]
    return torch.stack(means)
