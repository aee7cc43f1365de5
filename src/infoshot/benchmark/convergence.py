"""Accuracy and mutual information after each step, as in the paper's convergence figure."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import FeatureTable
from infoshot.features import prepare
from infoshot.metrics import accuracy, mean_interval
from infoshot.solvers import Method, StepEvent, solve
from infoshot.tasks import TaskSpec, sample_tasks


@dataclass(frozen=True, eq=False)
class Curve:
    """Convergence of one method on many tasks; column 0 is before the first step.

    ``seconds`` is the solving time per task in a batch, shape ``(n_steps + 1,)``; ``accuracy`` and
    ``mutual_information`` have shape ``(task, n_steps + 1)``.
    """

    method: str
    seconds: Tensor
    accuracy: Tensor
    mutual_information: Tensor

    def summary(self) -> "CurveSummary":
        """Means and intervals over the tasks as plain numbers."""
        return CurveSummary(
            self.method,
            n_tasks=len(self.accuracy),
            milliseconds=(1000 * self.seconds).tolist(),
            accuracy=[mean_interval(column) for column in (100 * self.accuracy).unbind(-1)],
            mutual_information=[
                mean_interval(column) for column in self.mutual_information.unbind(-1)
            ],
        )


@dataclass(frozen=True)
class CurveSummary:
    """Data of a figure: time of each step, and means with the half-widths of their intervals.

    Accuracy is in percent, mutual information in nats.
    """

    method: str
    n_tasks: int
    milliseconds: Sequence[float]
    accuracy: Sequence[tuple[float, float]]
    mutual_information: Sequence[tuple[float, float]]


def convergence_curve(
    table: FeatureTable, method: Method, spec: TaskSpec, *, n_tasks: int = 64
) -> Curve:
    """Solve tasks and record accuracy and mutual information after every step."""
    prepared = FeatureTable(prepare(table, method.preparation), table.labels)
    tasks, query_labels = sample_tasks(prepared, spec, n_tasks)
    scores = torch.full((n_tasks, method.solver.n_steps + 1), torch.nan, dtype=torch.float64)

    def score(event: StepEvent) -> None:
        ids = event.task_ids
        scores[ids, event.step] = accuracy(event.log_posterior(), query_labels[ids]).cpu()

    solution = solve(method.solver, tasks, record_trace=True, on_step=score)
    trace = solution.trace
    assert trace is not None
    last = torch.minimum(torch.arange(scores.shape[1]), solution.n_steps.unsqueeze(-1))
    scores = scores.gather(-1, last)  # a task that stopped keeps its accuracy
    return Curve(method.name, trace.seconds / n_tasks, scores, trace.mutual_information)
