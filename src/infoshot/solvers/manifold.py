r"""Scores that spread from class weights over a graph of neighbours, and their gradient.

The nodes are the class weights w, then the samples. With distances :math:`d_{ij}` between nodes and
their standard deviation :math:`\sigma`:

.. math:: A_{ij} = \exp(-g_{ij} d_{ij} / \sigma), \qquad
          W = h \circ (A + A^\top) / 2, \qquad B = D^{-1/2} W D^{-1/2}, \qquad
          F = (I - c B)^{-1} Y

Each sample's row of A keeps its largest entries, with all that equal the smallest of them, and rows
of class weights none. D holds the row sums of W; Y is the identity on the class weights and zero on
the samples. B need not be symmetric,
since h is not. A sample without a path to a class weight has the scores 0.

The gradient over F is taken back to w, g and h by the chain rule: through the linear system, whose
factors serve twice, through both degrees of an edge, and through :math:`\sigma`, which depends on
all distances.

Cost for N nodes: N N N / 3 operations for the system, 2 K N d for the distances, and 60 N N.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_TINY = 1e-12  # added to row sums, as in the original of alpha-AM


@dataclass(frozen=True, eq=False, kw_only=True)
class ManifoldGraph:
    """A graph, its scores, and what their gradient needs; see the module for the symbols."""

    w: Tensor  # [task, class, dim]
    g: Tensor  # [task, node, node], as the following
    h: Tensor
    d: Tensor
    scaled: Tensor  # d / sigma
    sigma: Tensor  # [task, 1, 1]
    a: Tensor  # A, zero where there is no edge
    symmetric: Tensor  # (A + A') / 2
    root: Tensor  # D^-1/2, [task, node, 1]
    b: Tensor
    propagation: float  # c
    factors: tuple[Tensor, Tensor]  # of I - c B
    scores: Tensor  # F, [task, node, class]

    @classmethod
    def build(
        cls,
        w: Tensor,
        z: Tensor,
        between: Tensor,
        *,
        sharpness: Tensor,
        pair_weights: Tensor,
        n_neighbours: int,
        propagation: float,
    ) -> Self:
        """Build the graph and solve for the scores.

        Parameters
        ----------
        w
            Class weights, shape ``(task, class, dim)``.
        z, between
            Samples, shape ``(task, sample, dim)``, and the distances between them.
        sharpness, pair_weights
            g and h, shape ``(task, node, node)``.
        n_neighbours
            Entries that each row of A keeps.
        propagation
            Weight of the neighbours (c), below 1.
        """
        n_way = w.shape[1]
        d = torch.nn.functional.pad(between, (n_way, 0, n_way, 0))
        d[:, :n_way, :n_way] = distances(w, w)
        to_samples = distances(w, z)
        d[:, :n_way, n_way:] = to_samples
        d[:, n_way:, :n_way] = to_samples.mT
        sigma = d.flatten(1).std(1)[:, None, None]
        scaled = d / sigma.masked_fill(sigma == 0, 1.0)
        a = torch.exp(-sharpness * scaled)
        a.diagonal(dim1=1, dim2=2).zero_()
        a[:, :n_way] = 0
        least = a.topk(min(n_neighbours, a.shape[2]), sorted=False).values.amin(2, keepdim=True)
        a.masked_fill_(a < least, 0.0)
        symmetric = (a + a.mT).mul_(0.5)
        pairs = pair_weights * symmetric
        root = pairs.sum(-1, keepdim=True).add_(_TINY).rsqrt_()
        b = pairs.mul_(root).mul_(root.mT)
        system = b * -propagation
        system.diagonal(dim1=1, dim2=2).add_(1.0)
        factors = torch.linalg.lu_factor_ex(system)[:2]
        labels = torch.eye(d.shape[1], n_way, dtype=d.dtype, device=d.device)
        return cls(
            w=w,
            g=sharpness,
            h=pair_weights,
            d=d,
            scaled=scaled,
            sigma=sigma,
            a=a,
            symmetric=symmetric,
            root=root,
            b=b,
            propagation=propagation,
            factors=factors,
            scores=torch.linalg.lu_solve(*factors, labels.expand(len(d), -1, -1)),
        )

    def gradients(self, by_scores: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients over w, g and h, given that over F, ``(task, node, class)``."""
        # F = (I - cB)^-1 Y: the gradient over B is c (I - cB)^-T dF F'.
        adjoint = torch.linalg.lu_solve(*self.factors, by_scores, adjoint=True)
        by_b = (adjoint @ self.scores.mT).mul_(self.propagation)
        share = by_b * self.b  # through both factors D^-1/2 of B
        by_degree = (share.sum(2) + share.sum(1)).unsqueeze(-1).mul_(self.root.square()).mul_(-0.5)
        by_pairs = by_b.mul_(self.root).mul_(self.root.mT).add_(by_degree)
        by_a = by_pairs * self.h
        by_exponent = (by_a + by_a.mT).mul_(-0.5).mul_(self.a)  # zero without an edge
        by_distances = self._through_spread(by_exponent * self.g)
        n_way = self.w.shape[1]
        near, d = (by_distances + by_distances.mT)[:, :n_way], self.d[:, :n_way]
        pull = near.div_(d.masked_fill(d == 0, torch.inf))
        of_w = pull.sum(-1, keepdim=True) * self.w
        of_w -= pull[:, :, :n_way] @ self.w + pull[:, :, n_way:] @ z
        return of_w, by_exponent.mul_(self.scaled), by_pairs.mul_(self.symmetric)

    def _through_spread(self, by_scaled: Tensor) -> Tensor:
        """Gradient over d of one over d / sigma; sigma depends on all distances."""
        sigma = self.sigma.masked_fill(self.sigma == 0, torch.inf)
        by_sigma = -(by_scaled * self.scaled).sum((1, 2), keepdim=True) / sigma
        factor = by_sigma / (sigma * (self.d[0].numel() - 1))
        return by_scaled / sigma + factor * (self.d - self.d.mean((1, 2), keepdim=True))


def distances(z: Tensor, others: Tensor) -> Tensor:
    """Distances without the cancellation of the formula with inner products."""
    return torch.cdist(z, others, compute_mode="donot_use_mm_for_euclid_dist")
