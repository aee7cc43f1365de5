"""What can be observed during a solve: step events, and the recorder of traces."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch, Trace
from infoshot.solvers.objective import (
    conditional_entropy,
    marginal_entropy,
    support_cross_entropy,
)

if TYPE_CHECKING:
    from infoshot.solvers.solver import Solver, State


@dataclass(frozen=True, eq=False)
class StepEvent:
    """A step of the tasks that are still running; step 0 is the start.

    ``task_ids`` are their positions in the batch that was given to ``solve``; ``seconds`` is the
    time of this step. The methods return copies; ``task`` and ``state`` belong to the solver and
    change with the next step.

    Examples
    --------
    >>> from infoshot import TimAdm, solve
    >>> from infoshot.tasks import gaussian_tasks
    >>> tasks, _ = gaussian_tasks(n_tasks=1)
    >>> shapes = []
    >>> solution = solve(
    ...     TimAdm(n_steps=2), tasks, on_step=lambda event: shapes.append(event.prototypes().shape)
    ... )
    >>> shapes  # at the start and after each step
    [torch.Size([1, 5, 32]), torch.Size([1, 5, 32]), torch.Size([1, 5, 32])]
    """

    step: int
    task_ids: Tensor
    seconds: float
    solver: "Solver[Any]"
    task: TaskBatch
    state: "State"

    def log_posterior(self) -> Tensor:
        """Log-probabilities of the queries now, shape ``(running task, query, class)``."""
        return self.solver.log_posterior(self.task, self.state).clone()

    def prototypes(self) -> Tensor:
        """Class weights now, shape ``(running task, class, dim)``."""
        return self.solver.prototypes(self.task, self.state).clone()


StepHook = Callable[[StepEvent], None]
"""What ``solve`` calls after every step, if it is passed as ``on_step``.

Examples
--------
>>> from infoshot import TimAdm, solve
>>> from infoshot.solvers import StepEvent
>>> from infoshot.tasks import gaussian_tasks
>>> def print_step(event: StepEvent) -> None:
...     print(event.step, len(event.task))
>>> solution = solve(TimAdm(n_steps=1), gaussian_tasks(n_tasks=2)[0], on_step=print_step)
0 2
1 2
"""


class TraceRecorder:
    """Record the terms of the objective at every step, per task."""

    def __init__(self, n_tasks: int, n_steps: int) -> None:
        self._terms = torch.full((4, n_tasks, n_steps + 1), torch.nan, dtype=torch.float64)
        self._seconds = torch.zeros(n_steps + 1, dtype=torch.float64)

    def __call__(self, event: StepEvent) -> None:
        """Record one step."""
        solver, task = event.solver, event.task
        log_p_sup = solver.classify(task.z_sup, event.prototypes())
        log_p_qry = event.log_posterior()
        terms = (
            support_cross_entropy(log_p_sup, task.y_sup),
            marginal_entropy(log_p_qry),
            conditional_entropy(log_p_qry),
            solver.loss(task, log_p_sup, log_p_qry),
        )
        self._terms[:, event.task_ids, event.step] = torch.stack(terms).to("cpu", torch.float64)
        self._seconds[event.step] += event.seconds

    def trace(self, n_steps: Tensor) -> Trace:
        """Return the trace; a task that stopped after ``n_steps`` keeps its last value."""
        columns = torch.arange(self._terms.shape[-1])
        last = torch.minimum(columns, n_steps.cpu().unsqueeze(-1))
        terms = self._terms.gather(-1, last.expand_as(self._terms))
        cross, marginal, conditional, loss = terms
        return Trace(cross, marginal, conditional, loss, seconds=self._seconds.cumsum(0))
