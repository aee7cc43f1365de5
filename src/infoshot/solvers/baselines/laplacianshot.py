r"""LaplacianShot: nearest prototype, with a term that gives neighbouring queries the same label.

Prototypes are rectified and queries shifted as in ``bd_cspn.py``. The assignments of the queries
then balance the distance from the prototypes against agreement with their nearest neighbours.

Objective, with :math:`a_{ik} = \frac{\tau}{2} \|z_i - w_k\|^2` and :math:`G_{ij} = 1` where query j
is one of the nearest neighbours of query i, over the assignments q:

.. math:: \sum_{ik} q_{ik} (a_{ik} + \log q_{ik})
          - \frac{\lambda}{2} \sum_{ijk} G_{ij} q_{ik} q_{jk}

Update, for all queries at once, from :math:`\mathrm{softmax}_k(-a_{ik})`:

.. math:: q_{ik} \leftarrow \mathrm{softmax}_k\Big(-a_{ik} + \lambda \sum_j G_{ij} q_{jk}\Big)

These are bound optimisation steps for symmetric G; the graph is used as it is, not symmetrised. The
prototypes do not change. Cost: 2 \|Q\| \|Q\| d operations once for the graph; a step takes only
K \|Q\| per neighbour.

When to prefer it: where nearest neighbours mostly share a class. The graph assumes nothing about
the class frequencies; the shift, which gives most of the gain on balanced tasks, assumes balanced
queries (``rectify=False`` omits it).

Reference: I. M. Ziko, J. Dolz, E. Granger, I. Ben Ayed. Laplacian Regularized Few-Shot Learning.
ICML 2020.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.baselines.bd_cspn import BdCspn, rectify
from infoshot.solvers.objective import class_logits, class_means
from infoshot.solvers.solver import Rule, Solver, State

_FEW_SHOTS, _MANY_SHOTS = 0.7, 0.2  # weight of a neighbour below 5 shots, and from 5 shots


@dataclass(eq=False)
class _LaplacianState(State):
    weights: Tensor  # [task, class, dim]
    neighbours: Tensor  # positions, all nearest ones first, [task, 1, neighbour * query]
    unary: Tensor  # -a up to a constant over the classes, [task, class, query]
    logits: Tensor  # of the current assignments, [task, class, query]


@final
@dataclass(frozen=True, kw_only=True)
class LaplacianShot(Solver[_LaplacianState]):
    """Nearest prototype, regularised by the graph of nearest neighbours among the queries.

    Parameters
    ----------
    n_steps
        Updates of the assignments.
    n_neighbours
        Number of nearest queries in the graph; all other queries if there are fewer.
    affinity_weight
        Weight of each neighbour (lambda). ``None``: 0.7 below 5 shots per class, else 0.2.
    rectify
        Rectify the prototypes first, as published. ``False``: distances from the class means.
    temperature
        Factor on half the squared distance from the prototypes; 2 gives the squared distance, as
        published.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.5, 0.6], [0.6, 0.4], [0.8, 0.4], [0.0, 0.8]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2)
    >>> solve(LaplacianShot(rectify=False), tasks).probabilities.argmax(-1)
    tensor([[0, 0, 0, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "n_neighbours": partial(checks.at_least, least=1),
        "affinity_weight": checks.positive_or_none,
        "rectify": partial(checks.one_of, allowed=(True, False)),
    }

    n_steps: int = 20
    n_neighbours: int = 2
    affinity_weight: float | None = None
    rectify: bool = True
    temperature: float = 2.0

    def init(self, task: TaskBatch) -> _LaplacianState:
        """Start from the distances and find the neighbours."""
        if self.rectify:
            weights, z = rectify(task, BdCspn.temperature)
        else:
            weights, z = class_means(task.z_sup, task.y_sup, task.n_way), task.z_qry
        unary = class_logits(z, weights, self.temperature)
        return _LaplacianState(
            weights=weights,
            neighbours=_neighbours(task.z_qry, self.n_neighbours).mT.flatten(1).unsqueeze(1),
            unary=unary,
            logits=unary,
        )

    def step(self, task: TaskBatch, state: _LaplacianState) -> _LaplacianState:
        """Update all assignments from the previous ones of their neighbours."""
        q = state.posterior = torch.softmax(state.logits, dim=1)
        pulls = q.gather(2, state.neighbours.expand(-1, task.n_way, -1))
        pull = pulls.unflatten(2, (pulls.shape[2] // task.n_qry, task.n_qry)).sum(2)
        state.logits = torch.add(state.unary, pull, alpha=self._affinity(task))
        return state

    def log_posterior(self, task: TaskBatch, state: _LaplacianState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return torch.log_softmax(state.logits, dim=1).mT

    def prototypes(self, task: TaskBatch, state: _LaplacianState) -> Tensor:
        """Rectified prototypes or class means, shape ``(task, class, dim)``."""
        return state.weights

    def working_set(self, task: TaskBatch) -> int:
        """Count the features, and the similarities of all pairs of queries."""
        return super().working_set(task) + task.n_qry * task.n_qry

    def _affinity(self, task: TaskBatch) -> float:
        if self.affinity_weight is not None:
            return self.affinity_weight
        return _FEW_SHOTS if task.n_sup < 5 * task.n_way else _MANY_SHOTS


def _neighbours(z: Tensor, n_neighbours: int) -> Tensor:
    """Positions of the samples nearest to each one, itself excluded, ``(task, n, neighbour)``."""
    nearness = torch.bmm(z, z.mT)  # squared distance: |z_i|^2 - 2 z_i z_j + |z_j|^2
    half_norm = nearness.diagonal(dim1=1, dim2=2).mul(0.5).unsqueeze(1)
    nearness.sub_(half_norm).diagonal(dim1=1, dim2=2).fill_(-math.inf)
    return nearness.topk(min(n_neighbours, z.shape[1] - 1)).indices
