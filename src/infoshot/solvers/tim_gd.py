r"""TIM-GD: gradient descent on the class weights with Adam.

Minimises the TIM objective [TIM] of ``docs/math.md`` over the weights, from class means. The
gradient is written out, so no autograd graph is built. With :math:`\ell` the logits,

- queries: :math:`\partial L / \partial \ell_{ki}
  = \frac{1}{|Q|} p_{ik} (u_{ik} - \sum_j p_{ij} u_{ij})` with
  :math:`u_{ik} = \beta (\log \hat p_k - \log \pi_k) - \alpha \log p_{ik}`
- support: :math:`\partial L / \partial \ell_{ki} = \frac{\lambda}{|S|} (p_{ik} - y_{ik})`
- weights: :math:`\partial L / \partial w_k = \tau (\sum_i g_{ki} z_i - (\sum_i g_{ki}) w_k)`

A step costs 4 N K d operations for N = \|S\| + \|Q\| samples. Adam works per coordinate, so the
result depends on the axes of the feature space and the descent cannot move into the span of the
samples, as TIM-ADM's does. Prefer TIM-ADM unless you need this very descent. Losses are summed over
tasks, so a batch is exactly a loop over its tasks.

Reference: [Boudiaf2020]_ in ``objective.py``; Adam as in ``adam.py``.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.solvers.adam import AdamState
from infoshot.solvers.objective import (
    class_logits,
    class_means,
    class_rows,
    log_posterior,
)
from infoshot.solvers.tim import TimSolver
from infoshot.types import TaskBatch


@dataclass(eq=False, kw_only=True)
class _GdState(AdamState):
    z: Tensor  # support and queries, [task, sample, dim]
    y: Tensor  # one-hot support labels, [task, class, support]
    log_prior: Tensor | None  # [task, class, 1]


@final
@dataclass(frozen=True, kw_only=True)
class TimGd(TimSolver[_GdState]):
    """Transductive information maximization by gradient descent (Adam) on the class weights.

    Parameters beyond those of ``TimSolver``:

    Parameters
    ----------
    n_steps
        Gradient steps per task.
    learning_rate
        Adam's step size.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(TimGd(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    n_steps: int = 1000
    learning_rate: float = 1e-4

    def init(self, task: TaskBatch) -> _GdState:
        """Start from class means."""
        weights = class_means(task.z_sup, task.y_sup, task.n_way)
        return _GdState(
            posterior=weights.new_full((len(task), task.n_way, task.n_qry), math.inf),
            weights=weights,
            z=torch.cat((task.z_sup, task.z_qry), dim=1),
            y=class_rows(task.y_sup, task.n_way, weights.dtype),
            log_prior=self.log_prior(task),
        )

    def step(self, task: TaskBatch, state: _GdState) -> _GdState:
        """One step of Adam along the gradient."""
        state.descend(self._gradient(task, state), self.learning_rate)
        return state

    def log_posterior(self, task: TaskBatch, state: _GdState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return log_posterior(task.z_qry, self.prototypes(task, state), self.temperature)

    def prototypes(self, task: TaskBatch, state: _GdState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        return state.weights

    def working_set(self, task: TaskBatch) -> int:
        """Count the features, the weights and Adam's means, and a few matrices of scores."""
        n = task.n_sup + task.n_qry
        return n * task.dim + 4 * task.n_way * task.dim + 4 * n * task.n_way

    def _gradient(self, task: TaskBatch, state: _GdState) -> Tensor:
        """Gradient of the TIM loss over the weights, see the module and [GRADIENT]."""
        log_p = torch.log_softmax(class_logits(state.z, state.weights, self.temperature), dim=1)
        log_p_qry = log_p[:, :, task.n_sup :]
        g = log_p.exp()
        g_sup, g_qry = g[:, :, : task.n_sup], g[:, :, task.n_sup :]
        if self.tolerance is not None:
            state.posterior = g_qry.clone()
        # log p_hat without its log |Q|: what is the same for all classes cancels in the next lines.
        log_share = torch.logsumexp(log_p_qry, dim=-1, keepdim=True)
        if state.log_prior is not None:
            log_share -= state.log_prior
        scale = self.temperature / task.n_qry
        u = torch.sub(
            log_share.mul_(scale * self.marginal_entropy_weight),
            log_p_qry,
            alpha=scale * self.conditional_entropy_weight,
        )
        g_qry.mul_(u.sub_((g_qry * u).sum(1, keepdim=True)))
        g_sup.sub_(state.y).mul_(self.temperature * self.cross_entropy_weight / task.n_sup)
        return torch.bmm(g, state.z).addcmul_(state.weights, g.sum(-1, keepdim=True), value=-1)
