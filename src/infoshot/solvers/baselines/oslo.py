r"""OSLO: soft k-means by cosine that weighs each query by how likely it belongs to any class.

With :math:`c_{ik} = \cos(z_i, w_k)`, from class means and :math:`q_i = \mathrm{softmax}(\tau c_i)`,
it repeats

.. math:: \xi_i = \sigma\left(\rho \sum_k q_{ik} c_{ik}\right), \qquad
          q_i = \mathrm{softmax}(\xi_i \tau c_i), \qquad
          w_k = \frac{\sum_S y_{ik} z_i + \sum_Q \xi_i q_{ik} z_i}
                     {\sum_S y_{ik} + \sum_Q \xi_i q_{ik}}

and takes c from the new weights. :math:`\xi_i` is how much query i is an inlier, and
:math:`1 - \xi_i`, from the last weights, its outlier score: the updates climb the likelihood of a
model in which a query may belong to no class. A step costs 4 \|Q\| K d operations. Like
soft k-means it has no term for the class balance, yet suffers where classes are missing: their
means drift to the queries of others. It assumes features that spread around the origin, so that a
strange query has small cosines; where all cosines are large, all queries are inliers.

Reference: M. Boudiaf, E. Bennequin, M. Tami, A. Toubhans, P. Piantanida, C. Hudelot, I. Ben Ayed.
Open-Set Likelihood Maximization for Few-Shot Learning. CVPR 2023.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_cosines
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Solver


@dataclass(eq=False, kw_only=True)
class _OsloState(MeansState):
    """``posterior`` holds q."""

    cosines: Tensor  # [task, class, query]


@final
@dataclass(frozen=True, kw_only=True)
class Oslo(Solver[_OsloState]):
    r"""Soft k-means by cosine with inlier scores, for queries that may belong to no class.

    Parameters
    ----------
    n_steps
        Repetitions per task.
    temperature
        Factor on the cosines in the posterior (:math:`\tau`); larger is sharper.
    inlier_temperature
        Factor on the mean cosine in the inlier score (:math:`\rho`); larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [-0.6, -0.5], [0.1, 0.9]]])
    >>> solution = solve(Oslo(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.outlier_scores > 0.5
    tensor([[False,  True, False]])
    """

    n_steps: int = 2
    temperature: float = 10.0
    inlier_temperature: float = 20.0

    def init(self, task: TaskBatch) -> _OsloState:
        """Start from class means, every query an inlier."""
        state = _OsloState.at_class_means(
            task.z_sup, task.y_sup, task.n_way, cosines=task.z_qry.new_empty(0)
        )
        state.cosines = class_cosines(task.z_qry, state.weights)
        state.posterior = torch.softmax(self.temperature * state.cosines, dim=1)
        return state

    def step(self, task: TaskBatch, state: _OsloState) -> _OsloState:
        """Inlier scores, soft labels, weights, each from the one before."""
        inlier = torch.sigmoid(self._inlier_logits(state))
        state.posterior = torch.softmax(state.cosines.mul_(inlier * self.temperature), dim=1)
        state.weights = state.means(state.posterior * inlier, task.z_qry)
        state.cosines = class_cosines(task.z_qry, state.weights)
        return state

    def log_posterior(self, task: TaskBatch, state: _OsloState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        sharpness = torch.sigmoid(self._inlier_logits(state)).mul_(self.temperature)
        return torch.log_softmax(state.cosines * sharpness, dim=1).mT

    def prototypes(self, task: TaskBatch, state: _OsloState) -> Tensor:
        """Means of support and of queries by inlier score, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples, taken for inliers, ``(task, sample, class)``."""
        return torch.log_softmax(class_cosines(z, prototypes).mul_(self.temperature), dim=1).mT

    def outlier_scores(self, task: TaskBatch, state: _OsloState) -> Tensor:
        r"""One minus :math:`\xi`, shape ``(task, query)``."""
        return torch.sigmoid(-self._inlier_logits(state)).squeeze(1)

    def _inlier_logits(self, state: _OsloState) -> Tensor:
        r"""Logits of :math:`\xi`, shape ``(task, 1, query)``."""
        mean_cosine = (state.posterior * state.cosines).sum(1, keepdim=True)
        return mean_cosine.mul_(self.inlier_temperature)
