"""Accuracy and mutual information after each step, as in the paper's convergence figure."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.features import prepare
from infoshot.metrics import accuracy, mean_interval
from infoshot.solvers import Method, StepEvent, solve
from infoshot.tasks import TaskSpec, sample_tasks


@dataclass(frozen=True, eq=False)
class Curve:
    """Convergence of one method on many tasks; column 0 is before the first step.

    ``accuracy`` and ``mutual_information`` have shape ``(task, n_steps + 1)``. ``seconds_alone`` is
    the mean time of a task that is solved alone, ``seconds_batched`` the time per task if all are
    solved together, both of shape ``(n_steps + 1,)``; ``None`` if it was not measured.
    """

    method: str
    device: str
    accuracy: Tensor
    mutual_information: Tensor
    seconds_alone: Tensor | None = None
    seconds_batched: Tensor | None = None

    def summary(self) -> "CurveSummary":
        """Means and intervals over the tasks as plain numbers."""
        return CurveSummary(
            self.method,
            n_tasks=len(self.accuracy),
            device=self.device,
            milliseconds_alone=_milliseconds(self.seconds_alone),
            milliseconds_batched=_milliseconds(self.seconds_batched),
            accuracy=[mean_interval(column) for column in (100 * self.accuracy).unbind(-1)],
            mutual_information=[
                mean_interval(column) for column in self.mutual_information.unbind(-1)
            ],
        )


@dataclass(frozen=True)
class CurveSummary:
    """Data of a figure: time of each step, and means with the half-widths of their intervals.

    Times are per task, alone and in a batch. Accuracy is in percent, mutual information in nats.
    """

    method: str
    n_tasks: int
    device: str
    milliseconds_alone: Sequence[float] | None
    milliseconds_batched: Sequence[float] | None
    accuracy: Sequence[tuple[float, float]]
    mutual_information: Sequence[tuple[float, float]]


def convergence_curve(
    table: FeatureTable, method: Method, spec: TaskSpec, *, n_tasks: int = 64, alone: bool = False
) -> Curve:
    """Solve tasks together and record accuracy and mutual information after every step.

    Parameters
    ----------
    alone
        Whether to solve each task again alone, for the time. Predictions do not depend on it.
    """
    prepared = FeatureTable(prepare(table, method.preparation), table.labels)
    tasks, query_labels = sample_tasks(prepared, spec, n_tasks)
    scores = torch.full((n_tasks, method.solver.n_steps + 1), torch.nan, dtype=torch.float64)

    def score(event: StepEvent) -> None:
        ids = event.task_ids
        scores[ids, event.step] = accuracy(event.log_posterior(), query_labels[ids]).cpu()

    solve(method.solver, tasks, record_trace=True, quiet=True)  # a warm-up
    solution = solve(method.solver, tasks, record_trace=True, on_step=score, quiet=True)
    trace = solution.trace
    assert trace is not None
    last = torch.minimum(torch.arange(scores.shape[1]), solution.n_steps.unsqueeze(-1))
    scores = scores.gather(-1, last)  # a task that stopped keeps its accuracy
    return Curve(
        method.name,
        str(table.features.device),
        scores,
        trace.mutual_information,
        seconds_alone=_seconds_alone(method, tasks) if alone else None,
        seconds_batched=trace.seconds / n_tasks,
    )


def _seconds_alone(method: Method, tasks: TaskBatch) -> Tensor:
    """Return the mean time until each step of tasks that are solved one by one."""
    seconds = torch.zeros(method.solver.n_steps + 1, dtype=torch.float64)

    def count(event: StepEvent) -> None:
        seconds[event.step] += event.seconds

    solve(method.solver, tasks[:1], on_step=count, validate=False, quiet=True)
    seconds.zero_()  # that was a warm-up
    for number in range(len(tasks)):
        solve(method.solver, tasks[number : number + 1], on_step=count, validate=False, quiet=True)
    return seconds.cumsum(0) / len(tasks)


def _milliseconds(seconds: Tensor | None) -> list[float] | None:
    return None if seconds is None else (1000 * seconds).tolist()
