r"""Gradient descent on class weights, shared by TIM-GD, alpha-TIM and OSTIM.

Minimises over the class weights with Adam, starting from the class means,

.. math:: \lambda \, CE - \beta H(\hat p) + \alpha \frac{1}{|Q|} \sum_{i \in Q} H(p_i), \qquad
          \hat p = \frac{1}{|Q|} \sum_{i \in Q} p_i

for an entropy H that is a sum over classes. The gradient is computed in closed form, without an
autograd graph. With :math:`\ell` the logits and :math:`s(r) = -\partial H / \partial r` up to a
constant, which for Shannon's entropy is :math:`\log r`,

- queries: :math:`\partial L / \partial \ell_{ki}
  = \frac{1}{|Q|} p_{ik} (u_{ik} - \sum_j p_{ij} u_{ij})` with
  :math:`u_{ik} = \beta s(\hat p_k) - \alpha s(p_{ik})`
- support: :math:`\partial L / \partial \ell_{ki} = \frac{\lambda}{|S|} (p_{ik} - y_{ik})`
- weights: :math:`\partial L / \partial w_k = \tau (\sum_i g_{ki} z_i - (\sum_i g_{ki}) w_k)` with
  g the two above

A step costs 4 N K d operations for N = \|S\| + \|Q\| samples. Adam scales every coordinate, so the
result depends on the axes of the feature space, and there is no Gram form as in TIM-ADM. Losses are
summed over tasks, so a batch gives exactly what a loop over its tasks gives.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.adam import AdamState
from infoshot.solvers.objective import class_logits, class_means, class_rows
from infoshot.solvers.tim import InformationSolver


@dataclass(eq=False, kw_only=True)
class DescentState(AdamState):
    """State of Adam, and the samples."""

    z: Tensor  # support and queries, [task, sample, dim]
    y: Tensor  # one-hot support labels, [task, class, support]
    log_prior: Tensor | None = None  # [task, class, 1]


@dataclass(frozen=True, kw_only=True)
class DescentSolver(InformationSolver[DescentState]):
    """Base of the solvers that descend on the class weights with Adam.

    It adds these parameters to those of ``InformationSolver``.

    Parameters
    ----------
    n_steps
        Gradient steps per task.
    learning_rate
        Adam's step size.
    """

    n_steps: int = 1000
    learning_rate: float = 1e-4

    def init(self, task: TaskBatch) -> DescentState:
        """Start from the class means."""
        weights = class_means(task.z_sup, task.y_sup, task.n_way)
        return DescentState(
            weights=weights,
            z=torch.cat((task.z_sup, task.z_qry), dim=1),
            y=class_rows(task.y_sup, task.n_way, weights.dtype),
        )

    def step(self, task: TaskBatch, state: DescentState) -> DescentState:
        """Take one step of Adam."""
        state.descend(self._gradient(task, state), self.learning_rate)
        return state

    def prototypes(self, task: TaskBatch, state: DescentState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        return state.weights

    def working_set(self, task: TaskBatch) -> int:
        """Count the features, the weights and Adam's means, and a few matrices of scores."""
        n = task.n_sup + task.n_qry
        return n * task.dim + 4 * task.n_way * task.dim + 4 * n * task.n_way

    def _gradient(self, task: TaskBatch, state: DescentState) -> Tensor:
        """Gradient of the loss over the weights, see the module and [GRADIENT]."""
        log_p = torch.log_softmax(class_logits(state.z, state.weights, self.temperature), dim=1)
        g = self._logit_gradient(task, state, log_p)
        return torch.bmm(g, state.z).addcmul_(state.weights, g.sum(-1, keepdim=True), value=-1)

    def _logit_gradient(self, task: TaskBatch, state: DescentState, log_p: Tensor) -> Tensor:
        """Tau times the gradient over the logits of all samples, ``(task, class, sample)``."""
        g = log_p.exp()
        g_sup, g_qry = g[:, :, : task.n_sup], g[:, :, task.n_sup :]
        if self.tolerance is not None:
            state.posterior = g_qry.clone()
        of_marginal, of_each = self._entropy_slopes(task, state, g_qry, log_p[:, :, task.n_sup :])
        scale = self.temperature / task.n_qry
        u = torch.sub(
            of_marginal.mul_(scale * self.marginal_entropy_weight),
            of_each,
            alpha=scale * self.conditional_entropy_weight,
        )
        g_qry.mul_(u.sub_((g_qry * u).sum(1, keepdim=True)))
        g_sup.sub_(state.y).mul_(self.temperature * self.cross_entropy_weight / task.n_sup)
        return g

    def _entropy_slopes(
        self, task: TaskBatch, state: DescentState, p: Tensor, log_p: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Slope s of the entropy at the marginal and at each prediction of the queries.

        Shapes ``(task, class, 1)``, which may be overwritten, and ``(task, class, query)``. A
        constant over the classes cancels later, so log p_hat is returned without its log |Q|.
        """
        log_share = torch.logsumexp(log_p, dim=-1, keepdim=True)
        if state.log_prior is not None:
            log_share -= state.log_prior
        return log_share, log_p
