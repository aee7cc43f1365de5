r"""TIM-ADM: alternating closed-form updates of soft assignments and class weights.

TIM-ADM maximizes the mutual information between the queries and their predicted labels while it
classifies the support correctly. It splits the problem into two updates that have closed forms.

Objective: [ADM] of ``docs/math.md``. Update, starting from the class means:

- q-step [Q-STEP]: :math:`q_{ik} \propto p_{ik}^{1+\alpha}
  \left(\pi_k / \sum_j p_{jk}^{1+\alpha}\right)^{\beta/(1+\beta)}`
- w-step [W-STEP]: :math:`w_k \leftarrow \left(a_k w_k + \sum_i b_{ki} z_i\right) / c_k` with
  :math:`b_{ki} = \sigma (y_{ik} - p_{ik})` on the support and :math:`q_{ik} - p_{ik}` on queries,
  :math:`\sigma = \frac{\lambda}{1+\alpha} \frac{|Q|}{|S|}`,
  :math:`a_k = \sigma \sum_S p_{ik} + \sum_Q p_{ik}`,
  :math:`c_k = \sigma \sum_S y_{ik} + \sum_Q q_{ik}`

Cost: the iteration has two equivalent forms. The *feature* form stores the weights w; a step costs
4 N K d operations. The *Gram* form uses that every w is a linear combination of the
N = \|S\| + \|Q\| samples: it stores the coefficients, computes scores from the Gram matrix, and a
step costs 2 N N K. The solver takes the cheaper form: Gram up to about N = d, and up to N = 2 d
with many steps and classes. Classes are rows throughout.

Many queries are divided into blocks, which threads share, see ``adm_blocks.py``.

When to prefer it: it assumes about as many queries of every class, or a known class prior. It is as
accurate as TIM-GD and about forty times faster. Where the class balance is unknown, use TIM-auto.

Reference: [Boudiaf2020]_ in ``objective.py``, Propositions 1 and 2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import ClassVar, Literal, Self, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.parallel import map_blocks
from infoshot.core.types import TaskBatch
from infoshot.solvers import _kernels as kernels
from infoshot.solvers.adm_blocks import (
    AdmState,
    Block,
    BlockPosterior,
    gram_block,
    joint_log_share,
    n_blocks,
    split_samples,
    tim_loss_of_rows,
)
from infoshot.solvers.objective import class_logits, class_means, class_rows
from infoshot.solvers.solver import Rule
from infoshot.solvers.tim import TimSolver


@final
@dataclass(frozen=True, kw_only=True)
class TimAdm(TimSolver[AdmState]):
    """Transductive information maximization by alternating closed-form updates.

    It adds these parameters to those of ``TimSolver``.

    Parameters
    ----------
    n_steps
        Alternations per task.
    prototype_step_size
        Fraction of the closed-form update that a step takes. ``None``: 1, as published; with a
        skewed class prior K times its smallest proportion, at least 0.3, since full steps then
        often oscillate between two states. Full steps also overshoot on many tasks of ten or more
        ways; ``solve`` reports such tasks as diverged.
    linearized
        Keep the linearised part of the weight update. ``False``: the variant of the paper's
        appendix, a soft k-means step, which loses accuracy.
    form
        ``"gram"`` or ``"feature"``, see the module. ``"auto"``: the cheaper one.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(TimAdm(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **TimSolver.rules,
        "prototype_step_size": checks.share_or_none,
        "linearized": partial(checks.one_of, allowed=(True, False)),
        "form": partial(checks.one_of, allowed=("auto", "gram", "feature")),
    }
    inductive = True

    n_steps: int = 150
    prototype_step_size: float | None = None
    linearized: bool = True
    form: Literal["auto", "gram", "feature"] = "auto"

    def init(self, task: TaskBatch) -> AdmState:
        """Start from the class means."""
        gram_form = self._uses_gram(task)
        y = class_rows(task.y_sup, task.n_way, task.z_sup.dtype)
        if gram_form:
            blocks = gram_block(task, self.temperature)
            weights = y.new_zeros(len(task), task.n_way, task.n_sup + task.n_qry)
            weights[:, :, : task.n_sup] = y / y.sum(-1, keepdim=True)
        else:
            blocks = split_samples(task)
            weights = class_means(task.z_sup, task.y_sup, task.n_way)
        return AdmState(
            gram_form=gram_form,
            blocks=blocks,
            weights=weights,
            y_scaled=y * self.support_weight(task.n_sup, task.n_qry),
            y_count=y.sum(-1, keepdim=True) * self.support_weight(task.n_sup, task.n_qry),
            log_prior=self.log_prior(task),
            balance=self.marginal_entropy_weight / (1 + self.marginal_entropy_weight),
        )

    def step(self, task: TaskBatch, state: AdmState) -> AdmState:
        """Take one q-step and one w-step, both from the posterior of the previous weights."""
        found = map_blocks(partial(self._posterior, state), state.blocks)
        log_share = joint_log_share(state, found)
        sums = map_blocks(partial(self._sums, task, state, log_share), found)
        # a, c and -b z of the module's docstring.
        a, c, moved = (reduce(Tensor.add_, parts) for parts in zip(*sums, strict=True))
        if self.tolerance is not None:
            state.posterior = torch.cat([part.query_probabilities() for part in found], dim=-1)
        share = c.add_(state.y_count).reciprocal()
        keep, step_size = a.mul_(share), self.step_size()
        if step_size != 1:
            share, keep = share * step_size, keep * step_size + (1 - step_size)
        if self.cross_entropy_weight == 0:  # a class without queries keeps its weights
            share, keep = share.where(c > 0, 0), keep.where(c > 0, 1)
        state.weights.mul_(keep).addcmul_(moved, share, value=-1)
        return state

    def advance(self, task: TaskBatch, state: AdmState, n_steps: int) -> AdmState:
        """Take many steps, in one launch where there is a kernel for the tasks."""
        if not self._has_kernel(task, state):
            return super().advance(task, state, n_steps)
        from infoshot.solvers._kernels.adm_steps import adm_steps

        state.weights = state.weights.contiguous()
        adm_steps(
            state.blocks[0].basis,
            state.weights,
            state.y_scaled,
            state.y_count,
            state.log_prior,
            state.balance,
            n_steps=n_steps,
            sharpness=1 + self.conditional_entropy_weight,
            sigma=self.support_weight(task.n_sup, task.n_qry),
            step_size=self.step_size(),
            linearized=self.linearized,
        )
        return state

    def log_posterior(self, task: TaskBatch, state: AdmState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        logits = map_blocks(partial(self._logits, state), state.blocks)
        return torch.log_softmax(torch.cat(logits, dim=-1)[:, :, task.n_sup :], dim=1).mT

    def objective(self, task: TaskBatch, state: AdmState) -> Tensor | None:
        """Return the TIM loss, shape ``(task,)``; soft k-means steps do not decrease it."""
        return self.loss_of(task, state, self.marginal_entropy_weight) if self.linearized else None

    def loss_of(self, task: TaskBatch, state: AdmState, beta: float | Tensor) -> Tensor:
        """TIM loss with this weight of the marginal entropy, which may differ between tasks."""
        parts = map_blocks(lambda b: torch.log_softmax(self._logits(state, b), 1), state.blocks)
        log_p = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        lam, alpha = self.cross_entropy_weight, self.conditional_entropy_weight
        return tim_loss_of_rows(log_p, task.y_sup, state.log_prior, lam=lam, beta=beta, alpha=alpha)

    def with_smaller_steps(self) -> Self:
        """Half the size, at most a quarter of the closed-form update, and twice as many."""
        n_steps, size = min(2 * self.n_steps, checks.MOST_STEPS), min(self.step_size() / 2, 0.25)
        return self.with_settings(prototype_step_size=size, n_steps=n_steps)

    def prototypes(self, task: TaskBatch, state: AdmState) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""
        if not state.gram_form:
            return state.weights
        of_sup, of_qry = state.weights.split((task.n_sup, task.n_qry), dim=-1)
        return torch.baddbmm(of_sup @ task.z_sup, of_qry, task.z_qry)

    def working_set(self, task: TaskBatch) -> int:
        """Count the Gram matrix or the features, and a few matrices of scores."""
        n = task.n_sup + task.n_qry
        return n * (n if self._uses_gram(task) else task.dim) + 4 * n * task.n_way

    def splits_samples(self, task: TaskBatch) -> bool:
        """Whether the task has several blocks of samples."""
        return not self._uses_gram(task) and n_blocks(task) > 1

    def support_weight(self, n_sup: int, n_qry: int) -> float:
        """Sigma, the weight of a support sample relative to a query."""
        weight = self.cross_entropy_weight / (1 + self.conditional_entropy_weight)
        return weight * n_qry / n_sup

    def step_size(self) -> float:
        """Fraction of the closed-form update that a step takes."""
        if self.prototype_step_size is not None:
            return self.prototype_step_size
        if self.class_prior is None:
            return 1.0
        rarest = len(self.class_prior) * min(self.class_prior) / sum(self.class_prior)
        return max(0.3, float(rarest))

    def _uses_gram(self, task: TaskBatch) -> bool:
        """Whether the Gram form is cheaper; its single large product runs twice as fast."""
        if self.form != "auto":
            return self.form == "gram"
        n, steps = task.n_sup + task.n_qry, self.n_steps * task.n_way
        return n * n * (task.dim + 2 * steps) < 4 * n * task.dim * steps

    def _has_kernel(self, task: TaskBatch, state: AdmState) -> bool:
        """Whether a kernel can take all steps; a tolerance needs the posterior of each step."""
        return (
            state.gram_form
            and self.tolerance is None
            and kernels.takes(state.weights, task.n_sup + task.n_qry, task.n_way)
        )

    def _logits(self, state: AdmState, block: Block) -> Tensor:
        """Scores with classes as rows, ``(task, class, sample)``, see [POSTERIOR]."""
        if not state.gram_form:
            return class_logits(block.basis.mT, state.weights, self.temperature)
        scores = torch.bmm(state.weights, block.basis)
        norm = torch.linalg.vecdot(state.weights, scores).unsqueeze(-1)
        return scores.sub_(norm, alpha=0.5)

    def _posterior(self, state: AdmState, block: Block) -> BlockPosterior:
        logits, alpha = self._logits(state, block), self.conditional_entropy_weight
        return BlockPosterior.of(block, logits, 1 + alpha)

    def _sums(
        self, task: TaskBatch, state: AdmState, log_share: Tensor, found: BlockPosterior
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over a block: a, c without the support, and -b z (-b in the Gram form)."""
        sigma = self.support_weight(task.n_sup, task.n_qry)
        a, c, b = found.sums(log_share, state.y_scaled, sigma, linearized=self.linearized)
        return a, c, b if state.gram_form else torch.bmm(b, found.block.basis.mT)
