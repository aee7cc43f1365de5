r"""PADDLE: soft k-means with estimated class proportions, for many classes of which few occur.

PADDLE clusters the queries around the class means with a penalty on the number of classes used. It
alternates between soft labels, class proportions and means.

Objective: the clustering cost plus :math:`\lambda H(\pi)`. Update, from the class means and equal
proportions:

.. math:: q_{ik} \propto \exp\left(-\frac{\tau}{2}\|z_i - w_k\|^2\right) \pi_k^{\lambda / |Q|},
          \qquad \pi_k = \frac{1}{|Q|} \sum_Q q_{ik}, \qquad
          w_k = \frac{\sum_S y_{ik} z_i + \sum_Q q_{ik} z_i}{\sum_S y_{ik} + \sum_Q q_{ik}}

With :math:`\lambda = |Q|` this is expectation maximization for a mixture of equal spheres with
unknown proportions. Proportions are stored as logarithms, so a class can vanish without becoming
log 0. Cost: 4 \|Q\| K d operations per step.

When to prefer it: where the queries belong to few of the classes. On balanced tasks the penalty
makes it merge classes that are close.

Reference: S. Martin, M. Boudiaf, E. Chouzenoux, J.-C. Pesquet, I. Ben Ayed. Towards Practical
Few-Shot Query Sets: Transductive Minimum Description Length Inference. NeurIPS 2022.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_logits
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Rule, Solver


@dataclass(eq=False, kw_only=True)
class _PaddleState(MeansState):
    log_share: Tensor  # log pi, [task, class, 1]


@final
@dataclass(frozen=True, kw_only=True)
class Paddle(Solver[_PaddleState]):
    r"""Soft k-means with estimated class proportions.

    Parameters
    ----------
    n_steps
        Alternations per task.
    temperature
        Factor on the squared distance in the posterior; larger is sharper. The published value is
        1 on unscaled features, which on features of unit length corresponds to their mean squared
        length, about 60 for ours.
    marginal_weight
        Penalty on using many classes (:math:`\lambda`). ``None``: the number of queries, which
        gives the proportions of a mixture model.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.9, 0.2], [0.8, 0.1], [0.5, 0.6]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2)
    >>> solve(Paddle(temperature=9.0), tasks).probabilities.argmax(-1)
    tensor([[0, 0, 0, 0]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "marginal_weight": checks.positive_or_none,
    }

    n_steps: int = 20
    temperature: float = 60.0
    marginal_weight: float | None = None

    def init(self, task: TaskBatch) -> _PaddleState:
        """Start from the class means and equal proportions."""
        shape = (len(task), task.n_way, 1)
        log_share = task.z_sup.new_full(shape, -math.log(task.n_way))
        return _PaddleState.at_class_means(task.z_sup, task.y_sup, task.n_way, log_share=log_share)

    def step(self, task: TaskBatch, state: _PaddleState) -> _PaddleState:
        """Update the soft labels, then proportions and weights from them."""
        log_q = self._log_assignments(task, state)
        state.posterior = log_q.exp()
        state.log_share = torch.logsumexp(log_q, -1, keepdim=True).sub_(math.log(task.n_qry))
        state.weights = state.means(state.posterior, task.z_qry)
        return state

    def log_posterior(self, task: TaskBatch, state: _PaddleState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return self._log_assignments(task, state).mT

    def prototypes(self, task: TaskBatch, state: _PaddleState) -> Tensor:
        """Means of support and softly labelled queries, shape ``(task, class, dim)``."""
        return state.weights

    def _log_assignments(self, task: TaskBatch, state: _PaddleState) -> Tensor:
        """Logarithm of q, ``(task, class, query)``."""
        power = 1.0 if self.marginal_weight is None else self.marginal_weight / task.n_qry
        logits = class_logits(task.z_qry, state.weights, self.temperature)
        return torch.log_softmax(logits.add_(state.log_share, alpha=power), dim=1)
