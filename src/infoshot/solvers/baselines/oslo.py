r"""OSLO: soft k-means by cosine with an inlier weight for each query, for open sets.

OSLO maximizes the likelihood of a model in which a query may belong to no class. It alternates
between inlier scores, soft labels and class means, so that outliers contribute little to the means.

Update, with :math:`c_{ik} = \cos(z_i, w_k)`, from the class means and
:math:`q_i = \mathrm{softmax}(\tau c_i)`:

.. math:: \xi_i = \sigma\left(\rho \sum_k q_{ik} c_{ik}\right), \qquad
          q_i = \mathrm{softmax}(\xi_i \tau c_i), \qquad
          w_k = \frac{\sum_S y_{ik} z_i + \sum_Q \xi_i q_{ik} z_i}
                     {\sum_S y_{ik} + \sum_Q \xi_i q_{ik}}

:math:`\xi_i` is the inlier score of query i, and :math:`1 - \xi_i`, from the last weights, its
outlier score. Cost: 4 \|Q\| K d operations per step.

When to prefer it: for queries of which some belong to no class. It has no term for the class
balance, but the mean of an absent class drifts to the queries of others. It assumes features
centred on the origin, so that outliers have small cosines; if all cosines are large, all queries
are inliers.

Reference: M. Boudiaf, E. Bennequin, M. Tami, A. Toubhans, P. Piantanida, C. Hudelot, I. Ben Ayed.
Open-Set Likelihood Maximization for Few-Shot Learning. CVPR 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_cosines
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Rule, Solver


@dataclass(eq=False, kw_only=True)
class _OsloState(MeansState):
    """``posterior`` holds q."""

    cosines: Tensor  # [task, class, query]


@final
@dataclass(frozen=True, kw_only=True)
class Oslo(Solver[_OsloState]):
    r"""Soft k-means by cosine with inlier scores, for open sets.

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

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "inlier_temperature": checks.positive,
    }

    n_steps: int = 2
    temperature: float = 10.0
    inlier_temperature: float = 20.0

    def init(self, task: TaskBatch) -> _OsloState:
        """Start from the class means, with every query an inlier."""
        state = _OsloState.at_class_means(
            task.z_sup, task.y_sup, task.n_way, cosines=task.z_qry.new_empty(0)
        )
        state.cosines = class_cosines(task.z_qry, state.weights)
        state.posterior = torch.softmax(self.temperature * state.cosines, dim=1)
        return state

    def step(self, task: TaskBatch, state: _OsloState) -> _OsloState:
        """Update inlier scores, soft labels and weights in turn."""
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
        """Means over support and inlier-weighted queries, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples, treated as inliers, ``(task, sample, class)``."""
        return torch.log_softmax(class_cosines(z, prototypes).mul_(self.temperature), dim=1).mT

    def outlier_scores(self, task: TaskBatch, state: _OsloState) -> Tensor:
        r"""One minus :math:`\xi`, shape ``(task, query)``."""
        return torch.sigmoid(-self._inlier_logits(state)).squeeze(1)

    def _inlier_logits(self, state: _OsloState) -> Tensor:
        r"""Logits of :math:`\xi`, shape ``(task, 1, query)``."""
        mean_cosine = (state.posterior * state.cosines).sum(1, keepdim=True)
        return mean_cosine.mul_(self.inlier_temperature)
