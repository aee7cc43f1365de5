r"""OSTIM: TIM-GD with an additional class for outliers.

OSTIM maximizes TIM's mutual information over K + 1 classes, of which the last one is for queries
that belong to none of the others. Its score is the negative mean of the other scores, so it has no
weights of its own.

.. math:: \ell_{ik} = \tau \cos(z_i, w_k), \qquad
          \ell_{i,K+1} = -\frac{1}{K} \sum_{k \le K} \ell_{ik}, \qquad
          p_i = \mathrm{softmax}(\ell_i)

Objective, over the weights of the K classes:

.. math:: \lambda \, CE - \beta H(\hat p) + \alpha \frac{1}{|Q|} \sum_{i \in Q} H(p_i)

Update: Adam from the class means. The gradient over the logits is that of ``descent.py``; with
:math:`g_{ki} = \partial L / \partial \ell_{ik} - \frac{1}{K} \partial L / \partial \ell_{i,K+1}`
and hats for unit length,

.. math:: \frac{\partial L}{\partial w_k} = \frac{\tau}{\|w_k\|} \left(\sum_i g_{ki} \hat z_i
          - \Big(\sum_i g_{ki} \hat z_i^\top \hat w_k\Big) \hat w_k\right)

The outlier score of a query is its probability of class K + 1; its class probabilities are the
softmax over the first K. Cost: 4 N K d operations per step for N = \|S\| + \|Q\| samples.

When to prefer it: for queries of which some belong to no class. It assumes about as many queries of
every class and of outliers, and features centred on the origin, so that outliers have small
cosines. A mean of length zero has no direction and does not change.

Reference: M. Boudiaf, E. Bennequin, M. Tami, C. Hudelot, A. Toubhans, P. Piantanida, I. Ben Ayed.
Model-Agnostic Few-Shot Open-Set Recognition. 2022; Adam as in ``adam.py``.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.descent import DescentSolver, DescentState
from infoshot.solvers.objective import class_cosines, class_rows, inverse_lengths


@final
@dataclass(frozen=True, kw_only=True)
class Ostim(DescentSolver):
    """Transductive information maximization with an outlier class, by gradient descent.

    Its parameters are those of ``DescentSolver``, with the temperature on the cosines.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [-0.6, -0.5], [0.1, 0.9]]])
    >>> solution = solve(Ostim(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.outlier_scores > 0.5
    tensor([[False,  True, False]])
    """

    def init(self, task: TaskBatch) -> DescentState:
        """Start from the class means; unit-length samples, labels with a row for outliers."""
        state = super().init(task)
        state.z *= inverse_lengths(state.z).unsqueeze(-1)
        state.y = class_rows(task.y_sup, task.n_way + 1, state.z.dtype)
        return state

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples, treated as inliers, ``(task, sample, class)``."""
        return torch.log_softmax(class_cosines(z, prototypes).mul_(self.temperature), dim=1).mT

    def outlier_scores(self, task: TaskBatch, state: DescentState) -> Tensor:
        """Probability of the outlier class, shape ``(task, query)``."""
        cosines = class_cosines(task.z_qry, state.weights)
        return self._open_log_posterior(cosines)[:, -1].exp()

    def _open_log_posterior(self, cosines: Tensor) -> Tensor:
        """Log-probabilities with a last row for outliers, ``(task, class + 1, sample)``."""
        rest = cosines.mean(1, keepdim=True).neg_()
        return torch.log_softmax(torch.cat((cosines, rest), dim=1).mul_(self.temperature), dim=1)

    def _gradient(self, task: TaskBatch, state: DescentState) -> Tensor:
        """Gradient of the loss over the weights, see the module."""
        inverse = inverse_lengths(state.weights).unsqueeze(-1)
        unit = state.weights * inverse
        log_p = self._open_log_posterior(torch.bmm(unit, state.z.mT))
        g = self._logit_gradient(task, state, log_p)
        # Sums over classes are zero up to rounding, mostly that of the likeliest class, which would
        # hide the gradient of an outlier class whose probability is still tiny.
        g.addcmul_(log_p.exp(), g.sum(1, keepdim=True), value=-1)
        g = g[:, :-1] - g[:, -1:] / task.n_way
        pull = torch.bmm(g, state.z)
        along = torch.linalg.vecdot(pull, unit).unsqueeze(-1)
        return pull.addcmul_(unit, along, value=-1).mul_(inverse)
