r"""BAVARDAGE: variational Bayes for a mixture with unknown class proportions.

BAVARDAGE fits a mixture of Gaussians to the queries, with priors on the class proportions and on
the class means, and uses the distributions of both instead of point estimates: where few queries
support a class, its mean stays near the base mean and its proportion near the others.

Model, on features centred by the base mean: proportions :math:`\pi \sim Dir(\alpha_0)`, means
:math:`\mu_k \sim N(0, I / (\beta_0 \tau))` and samples :math:`z_i \sim N(\mu_k, I / \tau)`.
Objective: the evidence lower bound of this model. Update, from the assignments of a few steps of
soft k-means, with :math:`q_{ik} = y_{ik}` on the support:

.. math:: n_k = \sum_{S \cup Q} q_{ik}, \qquad \alpha_k = \alpha_0 + \sum_Q q_{ik}, \qquad
          m_k = \frac{\sum_{S \cup Q} q_{ik} z_i}{\beta_0 + n_k}, \qquad
          q_{ik} \propto \exp\left(\psi(\alpha_k) - \frac{\tau}{2} \|z_i - m_k\|^2
                                   - \frac{K - 1}{2 (\beta_0 + n_k)}\right)

Cost: 4 \|Q\| K d operations per step. When to prefer it: where classes are moderately imbalanced
and all of them occur, with one example per class, and the mean of the base classes is known.

What differs from the original. It also needs the within-class scatter of the base classes, which
feature files do not hold. It scales each direction of the task's features by one over the root of
this scatter, at most by a given factor, and then projects them onto the K - 1 dimensions that the
means span (adaptive dimension reduction). Without the scatter all directions are equal, and the
projection onto the span of the differences of the :math:`m_k` changes no difference between
distances, hence no assignment; it is left out. The scatter is where the original's lead comes from:
on validation classes of mini-ImageNet under ``dirichlet:2`` with 75 queries this solver reaches
62.2 / 75.6 % (1 / 5 shots, 400 tasks) and the complete algorithm, with the scatter of 64 x 60
training images, 66.1 / 79.4 %. The published temperature on CUB, 4, is for scaled features (factors
of 2 to 5, hence 16 to 100 on ours); the default was chosen on these validation classes. Everything
else, priors, numbers of steps and the start, is as published.

Reference: Y. Hu, S. Pateux, V. Gripon. Adaptive Dimension Reduction and Variational Inference for
Transductive Few-Shot Classification. AISTATS 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_logits
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Rule, Solver


@dataclass(eq=False, kw_only=True)
class _BavardageState(MeansState):
    log_q: Tensor  # assignments of the queries, logarithms, [task, class, query]
    n_taken: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class Bavardage(Solver[_BavardageState]):
    r"""Variational Bayes for a mixture with unknown class proportions.

    Parameters
    ----------
    n_steps
        Steps per task, those of the start included.
    n_start_steps
        Steps of soft k-means at the start.
    start_temperature
        Factor on half the squared distance in soft k-means.
    temperature
        Factor on half the squared distance (:math:`\tau`), the precision of a class; larger is
        sharper.
    mean_weight
        Number of samples at the base mean that the prior of a class mean counts for
        (:math:`\beta_0`).
    proportion_weight
        Parameter of the Dirichlet distribution of the proportions (:math:`\alpha_0`).

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.7, 0.3], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(Bavardage(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "n_start_steps": partial(checks.at_least, least=0, most=checks.MOST_STEPS),
        "start_temperature": checks.positive,
        "mean_weight": checks.positive,
        "proportion_weight": checks.positive,
    }

    n_steps: int = 10
    n_start_steps: int = 5
    start_temperature: float = 20.0
    temperature: float = 30.0
    mean_weight: float = 10.0
    proportion_weight: float = 2.0

    def init(self, task: TaskBatch) -> _BavardageState:
        """Start from the class means, and assignments to the nearest of them."""
        state = _BavardageState.at_class_means(
            task.z_sup, task.y_sup, task.n_way, log_q=task.z_sup.new_empty(0)
        )
        state.log_q = self._nearest(task, state)
        return state

    def step(self, task: TaskBatch, state: _BavardageState) -> _BavardageState:
        """Take a step of soft k-means at the start, later one of variational Bayes."""
        state.n_taken += 1
        if state.n_taken <= self.n_start_steps:
            state.log_q = self._nearest(task, state)
            state.weights = state.means(state.log_q.exp(), task.z_qry)
            return state
        q = state.log_q.exp()
        n_assigned = q.sum(-1, keepdim=True)
        beta = n_assigned + state.support_count + self.mean_weight
        state.weights = torch.baddbmm(state.support_sum, q, task.z_qry).div_(beta)
        log_share = torch.digamma(n_assigned + self.proportion_weight)
        offset = log_share - (task.n_way - 1) / (2 * beta)
        logits = class_logits(task.z_qry, state.weights, self.temperature)
        state.log_q = torch.log_softmax(logits.add_(offset), dim=1)
        return state

    def log_posterior(self, task: TaskBatch, state: _BavardageState) -> Tensor:
        """Logarithm of the assignments of the queries, shape ``(task, query, class)``."""
        return state.log_q.mT

    def prototypes(self, task: TaskBatch, state: _BavardageState) -> Tensor:
        """Means of the classes, shrunken towards the base mean, shape ``(task, class, dim)``."""
        return state.weights

    def _nearest(self, task: TaskBatch, state: _BavardageState) -> Tensor:
        """Logarithm of the assignments of soft k-means, ``(task, class, query)``."""
        logits = class_logits(task.z_qry, state.weights, self.start_temperature)
        return torch.log_softmax(logits, dim=1)
