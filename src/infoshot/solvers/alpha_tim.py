r"""Alpha-TIM: TIM-GD with Tsallis entropies, for imbalanced classes.

Alpha-TIM replaces Shannon's entropies of TIM by Tsallis entropies of order a > 1. Their slope stays
finite as a class disappears from the marginal, so absent classes are not forced to occur, and
confident predictions weigh more than uncertain ones.

Objective, over the class weights:

.. math:: \lambda \, CE - \beta H_a(\hat p) + \alpha \frac{1}{|Q|} \sum_{i \in Q} H_a(p_i), \qquad
          H_a(r) = \frac{1 - \sum_k r_k^a}{a - 1}

Update: Adam on the gradient of ``descent.py``, from the class means, where the slope of the entropy
is

.. math:: s(r) = \frac{a}{a - 1} r^{a-1},

and :math:`\log r`, Shannon's, in the limit a = 1, which is TIM-GD. Powers are computed in log space
through base 2. Cost: 4 N K d operations per step for N = \|S\| + \|Q\| samples.

When to prefer it: where classes are moderately imbalanced. It does not assume equal class
frequencies but still favours them, less so for larger a.

Reference: O. Veilleux, M. Boudiaf, P. Piantanida, I. Ben Ayed. Realistic Evaluation of Transductive
Few-Shot Learning. NeurIPS 2021; Adam as in ``adam.py``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.descent import DescentSolver, DescentState
from infoshot.solvers.objective import log_marginal, support_cross_entropy, tim_loss
from infoshot.solvers.solver import Rule

_LOG2_E = math.log2(math.e)
_MOST_LOG2 = 100.0  # times a weight and a temperature it is still finite in float32


@final
@dataclass(frozen=True, kw_only=True)
class AlphaTim(DescentSolver):
    """Transductive information maximization with Tsallis entropies, by gradient descent.

    It adds this parameter to those of ``DescentSolver``, whose three weights are 1 here.

    Parameters
    ----------
    tsallis_alpha
        Order of the entropies (a). 1: Shannon's. ``None``: as published, 2 below five examples per
        class (on average), else 7.

    Examples
    --------
    >>> import torch
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(AlphaTim(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **DescentSolver.rules,
        "tsallis_alpha": checks.positive_or_none,
    }

    cross_entropy_weight: float = 1.0
    conditional_entropy_weight: float = 1.0
    tsallis_alpha: float | None = None

    def loss(self, task: TaskBatch, log_p_sup: Tensor, log_p_qry: Tensor) -> Tensor:
        """Return the alpha-TIM loss, shape ``(task,)``."""
        lam, beta = self.cross_entropy_weight, self.marginal_entropy_weight
        alpha, order = self.conditional_entropy_weight, self._order(task)
        if order == 1:
            return tim_loss(log_p_sup, task.y_sup, log_p_qry, lam=lam, beta=beta, alpha=alpha)
        marginal = tsallis_entropy(log_marginal(log_p_qry), order)
        conditional = tsallis_entropy(log_p_qry, order).mean(-1)
        cross_entropy = support_cross_entropy(log_p_sup, task.y_sup)
        return lam * cross_entropy - beta * marginal + alpha * conditional

    def _order(self, task: TaskBatch) -> float:
        if self.tsallis_alpha is not None:
            return self.tsallis_alpha
        return 2.0 if task.n_sup < 5 * task.n_way else 7.0

    def _entropy_slopes(
        self, task: TaskBatch, state: DescentState, p: Tensor, log_p: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Slopes of the Tsallis entropy at the marginal and at each prediction."""
        order = self._order(task)
        if order == 1:
            return super()._entropy_slopes(task, state, p, log_p)
        return tsallis_slope(p.mean(-1, keepdim=True).log_(), order), tsallis_slope(log_p, order)


def tsallis_slope(log_r: Tensor, order: float) -> Tensor:
    """``a/(a-1) r^(a-1)``; for a < 1 clamped to a finite value at r = 0, where r multiplies it.

    The slope of Shannon's entropy, log r, in the limit a = 1.
    """
    if order == 1:
        return log_r
    exponent = log_r * (_LOG2_E * (order - 1))
    if order < 1:
        exponent.clamp_(max=_MOST_LOG2)
    return exponent.exp2_().mul_(order / (order - 1))


def tsallis_entropy(log_p: Tensor, order: float) -> Tensor:
    """``(1 - sum_k p_k^a)/(a-1)`` over the last axis."""
    return (1 - (order * log_p).exp().sum(-1)) / (order - 1)
