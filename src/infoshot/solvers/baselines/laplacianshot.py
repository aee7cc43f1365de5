r"""LaplacianShot: nearest prototype, with neighbouring queries pulled to the same label.

Queries are shifted and prototypes rectified as in ``bd_cspn.py`` first. With
:math:`a_{ik} = \frac{\tau}{2} \|z_i - w_k\|^2` the distances from the prototypes and
:math:`G_{ij} = 1` where query j is one of the nearest neighbours of query i, the assignments q of
the queries start at :math:`\mathrm{softmax}_k(-a_{ik})` and are updated all at once,

.. math:: q_{ik} \leftarrow \mathrm{softmax}_k\Big(-a_{ik} + \lambda \sum_j G_{ij} q_{jk}\Big)

For symmetric G these are bound optimisation steps on :math:`\sum_{ik} q_{ik} (a_{ik} +
\log q_{ik}) - \frac{\lambda}{2} \sum_{ijk} G_{ij} q_{ik} q_{jk}`; the graph of nearest neighbours
is used as it is, not symmetrised. Prototypes stay where they are.

It assumes that neighbours mostly share a class. The graph asks nothing about how frequent classes
are; the shift, from which most of the gain on balanced tasks comes, does (``rectify=False`` leaves
it out). Cost: the graph takes 2 \|Q\| \|Q\| d operations once, a step only K \|Q\| per neighbour.

Reference: I. M. Ziko, J. Dolz, E. Granger, I. Ben Ayed. Laplacian Regularized Few-Shot Learning.
ICML 2020.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.baselines.bd_cspn import BdCspn, rectified
from infoshot.solvers.objective import class_logits, class_means
from infoshot.solvers.solver import Solver, State

_FEW_SHOTS, _MANY_SHOTS = 0.7, 0.2  # weights of the neighbours, below 5 shots and from 5 on


@dataclass(eq=False)
class _LaplacianState(State):
    weights: Tensor  # [task, class, dim]
    neighbours: Tensor  # positions, the nearest of all queries first, [task, 1, neighbour * query]
    unary: Tensor  # -a up to a term that is the same for all classes, [task, class, query]
    logits: Tensor  # of the assignments now, [task, class, query]


@final
@dataclass(frozen=True, kw_only=True)
class LaplacianShot(Solver[_LaplacianState]):
    """Nearest prototype, regularised by the graph of nearest neighbours among the queries.

    Parameters
    ----------
    n_steps
        Updates of the assignments.
    n_neighbours
        How many nearest queries pull at each query; all others if there are fewer.
    affinity_weight
        Weight of each neighbour (lambda). ``None``: 0.7 below 5 shots per class, 0.2 from 5 on.
    rectify
        Rectify the prototypes first, as published. ``False``: distances from the class means.
    temperature
        Factor on half the squared distance from the prototypes; 2 leaves the squared distance, as
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

    n_steps: int = 20
    n_neighbours: int = 2
    affinity_weight: float | None = None
    rectify: bool = True
    temperature: float = 2.0

    def init(self, task: TaskBatch) -> _LaplacianState:
        """Start from the distances alone; find the neighbours."""
        if self.rectify:
            weights, z = rectified(task, BdCspn.temperature)
        else:
            weights, z = class_means(task.z_sup, task.y_sup, task.n_way), task.z_qry
        unary = class_logits(z, weights, self.temperature)
        return _LaplacianState(
            posterior=torch.full_like(unary, math.inf),
            weights=weights,
            neighbours=_neighbours(task.z_qry, self.n_neighbours).mT.flatten(1).unsqueeze(1),
            unary=unary,
            logits=unary,
        )

    def step(self, task: TaskBatch, state: _LaplacianState) -> _LaplacianState:
        """Update all assignments, each from those of its neighbours before."""
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
    nearness = torch.bmm(z, z.mT)  # the squared distance is |z_i|^2 less twice this and |z_j|^2
    half_norm = nearness.diagonal(dim1=1, dim2=2).mul(0.5).unsqueeze(1)
    nearness.sub_(half_norm).diagonal(dim1=1, dim2=2).fill_(-math.inf)
    return nearness.topk(min(n_neighbours, z.shape[1] - 1)).indices
