"""One cell of a benchmark: draw tasks, solve and score them in chunks on all cores."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.environment import environment
from infoshot.core.memory import total_memory, watch_peak
from infoshot.core.parallel import chunk_ranges, map_chunks
from infoshot.core.types import FeatureTable, ResultRow, Solution, Status
from infoshot.features import choose_preparation, prepare
from infoshot.metrics import (
    accuracy,
    auroc,
    calibration_bins,
    expected_calibration_error,
    macro_accuracy,
    macro_f1,
    mean_interval,
    negative_log_likelihood,
)
from infoshot.solvers import Method, solve, solve_with_retry, tasks_per_chunk
from infoshot.tasks.sampler import TaskSampler, TaskSpec, gather_tasks
from infoshot.training.episodic.trained_head import TrainedHead


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a method is evaluated: what a task is, the number of tasks, and where they run.

    ``n_threads=None`` uses the number of threads of PyTorch; accuracies do not depend on it.

    Examples
    --------
    >>> from infoshot import TaskSpec
    >>> from infoshot.benchmark import Protocol
    >>> Protocol(spec=TaskSpec(n_way=5, n_shot=1), n_tasks=100).spec.n_query
    15
    """

    spec: TaskSpec
    n_tasks: int = 10_000
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    n_threads: int | None = None

    def validate(self, table: FeatureTable, method: Method) -> None:
        """Raise if these tasks cannot be drawn or solved."""
        check_task_count("n_tasks", self.n_tasks)
        if self.n_threads is not None:
            checks.at_least("n_threads", self.n_threads, 1, checks.MOST_THREADS)
        checks.device(self.device)
        method.solver.validate(self.spec.n_way)
        TaskSampler(table, self.spec)
        check_features(table, method)

    def describe(self, seconds: float) -> dict[str, Any]:
        """Fields of a row for tasks that ran with this protocol and took ``seconds`` in total."""
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


def check_features(table: FeatureTable, method: Method) -> None:
    """Raise ``DataError`` if a method cannot run on these features."""
    prepare(table, method.preparation)
    if isinstance(method.solver, TrainedHead):
        method.solver.check_features(table)


def check_task_count(name: str, n_tasks: int) -> None:
    """Raise if there are no tasks, or too many for their scores to be kept in memory.

    A method and a kind of task keep a few numbers per task until all are summarized. More than a
    thousand million tasks would take days even for the fastest method.
    """
    n_bytes = 8 * len(_METRICS)
    checks.at_least(name, n_tasks, 1, int(min(_MOST_TASKS, total_memory() / 2 // n_bytes)))


@dataclass(frozen=True, eq=False)
class _Scores:
    """Scores of some tasks: one column per metric in ``_METRICS``, and sums for calibration."""

    per_task: Tensor
    bins: Tensor


_MOST_TASKS = 10**9
_METRICS = ("accuracy", "macro", "macro_f1", "nll", "auroc", "moved queries", "diverged")


def score_cell(
    table: FeatureTable,
    method: Method,
    protocol: Protocol,
    *,
    features_name: str = "",
    features_digest: str = "",
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> tuple[ResultRow, Tensor]:
    """Evaluate one method on one kind of task.

    Parameters
    ----------
    table
        Features as stored; this function applies the preparation of the method.
    method, protocol
        What to run, and how.
    features_name, features_digest
        Name and digest of the features, for the row.
    on_progress
        Called with the number of tasks finished since the last call.

    Returns
    -------
    The row, and the accuracy of each task between 0 and 1, shape ``(task,)``.

    Raises
    ------
    InvalidArgumentError, ShapeError, DataError
        If a number is not allowed, or the tasks cannot be drawn from this table or solved by this
        method.

    Examples
    --------
    >>> from infoshot import METHODS, TaskSpec, read_features
    >>> from infoshot.features import default_features_path
    >>> table = read_features(default_features_path())
    >>> protocol = Protocol(spec=TaskSpec(n_shot=5), n_tasks=20)
    >>> row, accuracies = score_cell(table, METHODS["prototype"], protocol)
    >>> abs(row.mean - 100 * float(accuracies.mean())) < 1e-6
    True
    """
    protocol.validate(table, method)
    preparation = choose_preparation(table, method.preparation)
    known = ("base-scatter",) if preparation == "whitened" else ()
    prepared = _prepare(table, method, protocol)
    sampler = TaskSampler(prepared, protocol.spec)
    peak = _watch_peak(protocol.device)
    start = _synchronised_clock(protocol.device)
    scores = _collect(_score_chunks(prepared, sampler, method, protocol), protocol, on_progress)
    seconds = _synchronised_clock(protocol.device) - start
    row = ResultRow(
        method=method.name,
        assumes=(*known, *method.assumes),
        **_summarize(scores, protocol),
        **protocol.describe(seconds),
        memory_mb=peak() / 2**20,
        dtype=str(protocol.dtype).removeprefix("torch."),
        features=features_name,
        features_digest=features_digest,
        settings={"preparation": preparation, **method.solver.provenance()},
    )
    return row, scores.per_task[:, 0].clone()


def _collect(
    chunks: Iterator[_Scores], protocol: Protocol, on_progress: Callable[[int], None]
) -> _Scores:
    """Scores of all chunks; only a few numbers per task are kept."""
    per_task = torch.empty(protocol.n_tasks, len(_METRICS), dtype=torch.float64)
    bins, n_done = None, 0
    for chunk in chunks:
        n_new = len(chunk.per_task)
        per_task[n_done : n_done + n_new] = chunk.per_task
        bins = chunk.bins if bins is None else bins + chunk.bins
        n_done += n_new
        on_progress(n_new)
    assert bins is not None
    return _Scores(per_task, bins)


def _summarize(scores: _Scores, protocol: Protocol) -> dict[str, Any]:
    """Fields of a row that summarize all tasks."""
    accuracies, macro, f1, nll, areas, moved, diverged = scores.per_task.unbind(-1)
    mean, half_width = mean_interval(accuracies)
    area, area_half_width = mean_interval(areas)
    return {
        "mean": 100 * mean,
        "ci95": 100 * half_width,
        "macro": 100 * float(macro.mean()),
        "macro_f1": 100 * float(f1.mean()),
        "nll": float(nll.mean()),
        "ece": 100 * expected_calibration_error(scores.bins),
        "auroc": 100 * area,
        "auroc_ci95": 100 * area_half_width,
        "note": _note(moved, protocol.spec),
        "diverged": int(diverged.sum()),
    }


def _note(moved: Tensor, spec: TaskSpec) -> str:
    """Sentence about queries that were drawn from other classes, or an empty string."""
    n_moved, n_affected = int(moved.sum()), int((moved > 0).sum())
    if not n_moved:
        return ""
    total = len(moved) * spec.regime.n_queries(spec.n_way, spec.n_query)
    return (
        f"{n_moved:,} of {total:,} queries, in {n_affected:,} of {len(moved):,} tasks, come from "
        "other classes of the task because their class has too few samples."
    )


def _prepare(table: FeatureTable, method: Method, protocol: Protocol) -> FeatureTable:
    """Features prepared for the method, on the device and in the dtype of the protocol."""
    features = prepare(table, method.preparation).to(protocol.device, protocol.dtype)
    labels = table.labels.to(protocol.device)
    return dataclasses.replace(table, features=features, labels=labels)


def _score_chunks(
    table: FeatureTable, sampler: TaskSampler, method: Method, protocol: Protocol
) -> Iterator[_Scores]:
    """Scores of the tasks, chunk by chunk."""
    one_task, _ = gather_tasks(table, sampler, range(1))
    chunk_size = tasks_per_chunk(method.solver, one_task)
    n_threads = protocol.n_threads
    if n_threads is None:
        n_threads = torch.get_num_threads() if table.features.device.type == "cpu" else 1

    def score(chunk: range) -> _Scores:
        tasks, query_labels = gather_tasks(table, sampler, chunk)
        run = solve_with_retry if method.retry else solve
        solution = run(method.solver, tasks, n_threads=1, validate=False, quiet=True)
        p = solution.probabilities
        columns = (
            accuracy(p, query_labels),
            macro_accuracy(p, query_labels),
            macro_f1(p, query_labels),
            negative_log_likelihood(p, query_labels),
            _auroc(solution, query_labels),
            sampler.moved_queries(chunk),
            solution.status == Status.DIVERGED,
        )
        per_task = torch.stack([column.double().cpu() for column in columns], dim=-1)
        return _Scores(per_task, calibration_bins(p, query_labels).cpu())

    return map_chunks(score, chunk_ranges(protocol.n_tasks, chunk_size), n_threads)


def _auroc(solution: Solution, query_labels: Tensor) -> Tensor:
    """AUROC of the outlier scores, per task; NaN if there are no outliers."""
    outlier = query_labels < 0
    if not outlier.any():
        return torch.full((len(query_labels),), torch.nan)
    return auroc(solution.outlier_scores, outlier)


def _watch_peak(device: str) -> Callable[[], float]:
    """Start to measure the peak memory of the device."""
    if not device.startswith("cuda"):
        return watch_peak()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: float(torch.cuda.max_memory_allocated(device) - before)


def _synchronised_clock(device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()
