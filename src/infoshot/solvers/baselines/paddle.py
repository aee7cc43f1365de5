r"""PADDLE: soft k-means that learns how frequent each class is, for many ways of which few occur.

Alternates, from class means and equal shares,

.. math:: q_{ik} \propto \exp\left(-\frac{\tau}{2}\|z_i - w_k\|^2\right) \pi_k^{\lambda / |Q|},
          \qquad \pi_k = \frac{1}{|Q|} \sum_Q q_{ik}, \qquad
          w_k = \frac{\sum_S y_{ik} z_i + \sum_Q q_{ik} z_i}{\sum_S y_{ik} + \sum_Q q_{ik}}

which minimises a clustering cost plus :math:`\lambda H(\pi)`, a price on using many classes. With
:math:`\lambda = |Q|` it is expectation maximization of a mixture of equal spheres with unknown
shares. Shares are kept as logarithms, so a class can fade out without becoming log 0. A step costs
4 \|Q\| K d operations. It assumes that the queries belong to few of the classes; on balanced tasks
the price makes it merge classes that are close.

Reference: S. Martin, M. Boudiaf, E. Chouzenoux, J.-C. Pesquet, I. Ben Ayed. Towards Practical
Few-Shot Query Sets: Transductive Minimum Description Length Inference. NeurIPS 2022.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_logits
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Solver


@dataclass(eq=False, kw_only=True)
class _PaddleState(MeansState):
    log_share: Tensor  # log pi, [task, class, 1]


@final
@dataclass(frozen=True, kw_only=True)
class Paddle(Solver[_PaddleState]):
    r"""Soft k-means with learnt class shares.

    Parameters
    ----------
    n_steps
        Alternations per task.
    temperature
        Factor on the squared distance in the posterior; larger is sharper. The published model has
        1 on features as they are; that is their mean squared length, some 60 for ours, on features
        of length one.
    marginal_weight
        Price on using many classes (:math:`\lambda`). ``None``: the number of queries, which makes
        the shares those of a mixture.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.9, 0.2], [0.8, 0.1], [0.5, 0.6]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2)
    >>> solve(Paddle(temperature=9.0), tasks).probabilities.argmax(-1)
    tensor([[0, 0, 0, 0]])
    """

    n_steps: int = 20
    temperature: float = 60.0
    marginal_weight: float | None = None

    def init(self, task: TaskBatch) -> _PaddleState:
        """Start from class means and equal shares."""
        shape = (len(task), task.n_way, 1)
        log_share = task.z_sup.new_full(shape, -math.log(task.n_way))
        return _PaddleState.at_class_means(task.z_sup, task.y_sup, task.n_way, log_share=log_share)

    def step(self, task: TaskBatch, state: _PaddleState) -> _PaddleState:
        """Soft labels from weights and shares, then both from the soft labels."""
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
