r"""TIM-GD: gradient descent on the class weights with Adam.

TIM-GD maximizes the mutual information between the queries and their predicted labels while it
classifies the support correctly, by gradient descent on the class weights.

Objective: [TIM] of ``docs/math.md``. Update: Adam on the gradient of ``descent.py`` with Shannon's
entropy, from the class means; with a class prior :math:`\pi` the slope at the marginal is
:math:`\log \hat p_k - \log \pi_k`. Cost: 4 N K d operations per step for N = \|S\| + \|Q\| samples.

When to prefer it: it assumes about as many queries of every class, or a known class prior. Prefer
TIM-ADM, which reaches the same accuracy faster, unless you need the published gradient descent.

Reference: [Boudiaf2020]_ in ``objective.py``; Adam as in ``adam.py``.
"""

import dataclasses
from dataclasses import dataclass
from typing import final

from infoshot.core.types import TaskBatch
from infoshot.solvers import _kernels as kernels
from infoshot.solvers.adam import corrected
from infoshot.solvers.descent import DescentSolver, DescentState
from infoshot.solvers.tim import TimSolver


@final
@dataclass(frozen=True, kw_only=True)
class TimGd(DescentSolver, TimSolver[DescentState]):
    """Transductive information maximization by gradient descent (Adam) on the class weights.

    Its parameters are those of ``TimSolver`` and ``DescentSolver``.

    Examples
    --------
    >>> import torch
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(TimGd(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    def init(self, task: TaskBatch) -> DescentState:
        """Start from the class means, with the prior."""
        return dataclasses.replace(super().init(task), log_prior=self.log_prior(task))

    def advance(self, task: TaskBatch, state: DescentState, n_steps: int) -> DescentState:
        """Take many steps, in one launch where there is a kernel for the tasks."""
        n_samples = task.n_sup + task.n_qry
        if self.tolerance is not None or not kernels.takes(state.z, n_samples, task.n_way):
            return super().advance(task, state, n_steps)
        from infoshot.solvers._kernels.descent_steps import descent_steps

        steps = range(state.n_descents + 1, state.n_descents + n_steps + 1)
        rates = [corrected(step, self.learning_rate) for step in steps]
        descent_steps(
            state.z,
            state.y,
            state.weights,
            state.mean,
            state.square,
            state.log_prior,
            state.z.new_tensor(rates),
            temperature=self.temperature,
            cross_entropy_weight=self.cross_entropy_weight,
            marginal_entropy_weight=self.marginal_entropy_weight,
            conditional_entropy_weight=self.conditional_entropy_weight,
        )
        state.n_descents += n_steps
        return state
