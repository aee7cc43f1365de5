"""One cell of a benchmark: draw tasks, solve them, score them, in chunks on all cores."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.environment import environment
from infoshot.core.memory import watch_peak
from infoshot.core.parallel import chunk_ranges, map_chunks
from infoshot.core.types import FeatureTable, ResultRow, Solution
from infoshot.features import prepare
from infoshot.metrics import (
    accuracy,
    auroc,
    calibration_bins,
    expected_calibration_error,
    macro_accuracy,
    mean_interval,
    negative_log_likelihood,
)
from infoshot.solvers import Method, solve, tasks_per_chunk
from infoshot.tasks.sampler import TaskSampler, TaskSpec, gather_tasks


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a method is evaluated: what a task is, how many of them, and where they run.

    ``n_threads = None`` takes as many as PyTorch does; the accuracies do not depend on it.
    """

    spec: TaskSpec
    n_tasks: int = 10_000
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    n_threads: int | None = None

    def validate(self, table: FeatureTable, method: Method) -> None:
        """Raise, before any work, if these tasks cannot be drawn or solved."""
        checks.at_least("n_tasks", self.n_tasks, 1)
        if self.n_threads is not None:
            checks.at_least("n_threads", self.n_threads, 1)
        checks.device(self.device)
        method.solver.validate(self.spec.n_way)
        TaskSampler(table, self.spec)
        prepare(table, method.preparation)

    def described(self, seconds: float) -> dict[str, Any]:
        """What a row says of tasks that were run like this and took so long."""
        return {
            "ways": self.spec.n_way,
            "shots": self.spec.n_shot,
            "queries": self.spec.n_query,
            "tasks": self.n_tasks,
            "seed": self.spec.seed,
            "regime": str(self.spec.regime),
            "seconds": seconds,
            "per_task_ms": 1000 * seconds / self.n_tasks,
            "device": self.device,
            "environment": environment(self.device),
        }


@dataclass(frozen=True, eq=False)
class _Scores:
    """Of some tasks: accuracy, macro, nll and auroc as columns, and the sums for calibration."""

    per_task: Tensor
    bins: Tensor


def run_cell(
    table: FeatureTable,
    method: Method,
    protocol: Protocol,
    *,
    features_name: str = "",
    features_digest: str = "",
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> ResultRow:
    """Accuracy of one method on one kind of task; see :func:`score_cell`."""
    row, _ = score_cell(
        table,
        method,
        protocol,
        features_name=features_name,
        features_digest=features_digest,
        on_progress=on_progress,
    )
    return row


def score_cell(
    table: FeatureTable,
    method: Method,
    protocol: Protocol,
    *,
    features_name: str = "",
    features_digest: str = "",
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> tuple[ResultRow, Tensor]:
    """Accuracy of one method on one kind of task, and of every single task.

    Parameters
    ----------
    table
        Features as they are; what the method wants done to them first is done here.
    method, protocol
        What to run, and how.
    features_name, features_digest
        What the row says about the features.
    on_progress
        Called with the number of tasks that were finished since the last call.

    Returns
    -------
    The row, and the accuracies of the tasks between 0 and 1, shape ``(task,)``.
    """
    protocol.validate(table, method)
    prepared = _prepared(table, method, protocol)
    sampler = TaskSampler(prepared, protocol.spec)
    peak = _watch_peak(protocol.device)
    start = _synchronised_clock(protocol.device)
    scores = _collected(_score_chunks(prepared, sampler, method, protocol), protocol, on_progress)
    seconds = _synchronised_clock(protocol.device) - start
    row = ResultRow(
        method=method.name,
        assumes=method.assumes,
        **_summary(scores),
        **protocol.described(seconds),
        memory_mb=peak() / 2**20,
        dtype=str(protocol.dtype).removeprefix("torch."),
        features=features_name,
        features_digest=features_digest,
        settings={"preparation": method.preparation, **method.solver.settings()},
    )
    return row, scores.per_task[:, 0].clone()


def _collected(
    chunks: Iterator[_Scores], protocol: Protocol, on_progress: Callable[[int], None]
) -> _Scores:
    """All chunks in one; a few numbers per task are all that is kept of it."""
    per_task, bins, n_done = torch.empty(protocol.n_tasks, 4, dtype=torch.float64), None, 0
    for chunk in chunks:
        n_new = len(chunk.per_task)
        per_task[n_done : n_done + n_new] = chunk.per_task
        bins = chunk.bins if bins is None else bins + chunk.bins
        n_done += n_new
        on_progress(n_new)
    assert bins is not None
    return _Scores(per_task, bins)


def _summary(scores: _Scores) -> dict[str, Any]:
    """What a row says about all tasks."""
    accuracies, macro, nll, areas = scores.per_task.unbind(-1)
    mean, half_width = mean_interval(accuracies)
    area, area_half_width = mean_interval(areas)
    return {
        "mean": 100 * mean,
        "ci95": 100 * half_width,
        "macro": 100 * float(macro.mean()),
        "nll": float(nll.mean()),
        "ece": 100 * expected_calibration_error(scores.bins),
        "auroc": 100 * area,
        "auroc_ci95": 100 * area_half_width,
    }


def _prepared(table: FeatureTable, method: Method, protocol: Protocol) -> FeatureTable:
    """Features as the method wants them, where they are needed."""
    features = prepare(table, method.preparation).to(protocol.device, protocol.dtype)
    labels = table.labels.to(protocol.device)
    return dataclasses.replace(table, features=features, labels=labels)


def _score_chunks(
    table: FeatureTable, sampler: TaskSampler, method: Method, protocol: Protocol
) -> Iterator[_Scores]:
    """Scores of the tasks, chunk after chunk."""
    one_task, _ = gather_tasks(table, sampler, range(1))
    chunk_size = tasks_per_chunk(method.solver, one_task)
    n_threads = protocol.n_threads
    if n_threads is None:
        n_threads = torch.get_num_threads() if table.features.device.type == "cpu" else 1

    def score(chunk: range) -> _Scores:
        tasks, query_labels = gather_tasks(table, sampler, chunk)
        solution = solve(method.solver, tasks, n_threads=1, chunk_size=len(chunk), validate=False)
        p = solution.probabilities
        columns = (
            accuracy(p, query_labels),
            macro_accuracy(p, query_labels),
            negative_log_likelihood(p, query_labels),
            _auroc(solution, query_labels),
        )
        per_task = torch.stack([column.double().cpu() for column in columns], dim=-1)
        return _Scores(per_task, calibration_bins(p, query_labels).cpu())

    return map_chunks(score, chunk_ranges(protocol.n_tasks, chunk_size), n_threads)


def _auroc(solution: Solution, query_labels: Tensor) -> Tensor:
    """Of the outlier scores, per task; NaN where all queries are of the task's classes."""
    outlier = query_labels < 0
    if not outlier.any():
        return torch.full((len(query_labels),), torch.nan)
    return auroc(solution.outlier_scores, outlier)


def _watch_peak(device: str) -> Callable[[], float]:
    """Begin to watch the memory in use where the tasks are solved."""
    if not device.startswith("cuda"):
        return watch_peak()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: float(torch.cuda.max_memory_allocated(device) - before)


def _synchronised_clock(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()
