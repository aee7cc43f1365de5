"""The types that packages exchange: feature tables, batches of tasks, solutions, result rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from os import PathLike
from typing import Any, Literal, TypeAlias

from torch import Tensor

AnyPath = str | PathLike[str]
Preparation: TypeAlias = Literal["l2", "centred-l2", "whitened", "power-l2", "none"]
"""What features need before a method gets them, see :func:`infoshot.features.prepare`."""


@dataclass(frozen=True, eq=False)
class BaseStatistics:
    """What is known about the features of the base classes, on which a network was trained.

    Parameters
    ----------
    mean
        Their mean, shape ``(dim,)``.
    scatter
        How they differ within the classes, shape ``(direction, dim)``, see
        :mod:`infoshot.features.normalize`.
    """

    mean: Tensor
    scatter: Tensor


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of many samples, with their labels and provenance.

    Parameters
    ----------
    features
        Shape ``(sample, dim)``, a floating dtype.
    labels
        Shape ``(sample,)``, int64; -1 means unlabelled.
    base_mean
        Mean feature of the base classes, shape ``(dim,)``, if known.
    class_names
        Name of class ``k`` at position ``k``; empty if unknown.
    provenance
        What the features depend on: data set, split, network, transform, version; as text.
    base_scatter
        How features of the base classes differ within the classes, shape ``(direction, dim)``, if
        known: see :mod:`infoshot.features.normalize`.
    columns
        Other columns of a Parquet file, such as ids: a ``pyarrow.Table`` with a row per sample.

    Examples
    --------
    >>> import torch
    >>> from infoshot import FeatureTable
    >>> labels = torch.tensor([0, 1, -1])  # the last row is unlabelled
    >>> table = FeatureTable(torch.eye(3), labels, class_names=("cat", "dog"))
    >>> table.class_name(1)
    'dog'
    """

    features: Tensor
    labels: Tensor
    base_mean: Tensor | None = None
    class_names: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    base_scatter: Tensor | None = None
    columns: Any = None

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)


@dataclass(frozen=True, eq=False, repr=False)
class TaskBatch:
    """Many few-shot tasks of one shape. It deliberately has no field for query labels.

    Parameters
    ----------
    z_sup
        Support features, shape ``(task, support, dim)``.
    y_sup
        Support labels from 0 to ``n_way - 1``, shape ``(task, support)``; shots may be unequal.
    z_qry
        Query features, shape ``(task, query, dim)``.
    n_way
        Number of classes.

    Examples
    --------
    Two tasks with three classes, one example of each, and ten queries:

    >>> import torch
    >>> from infoshot import TaskBatch
    >>> y_sup = torch.tensor([[0, 1, 2], [0, 1, 2]])
    >>> tasks = TaskBatch(torch.zeros(2, 3, 8), y_sup, torch.zeros(2, 10, 8), n_way=3)
    >>> tasks
    TaskBatch(z_sup=[2, 3, 8], y_sup=[2, 3], z_qry=[2, 10, 8], n_way=3)
    >>> len(tasks), len(tasks[:1]), tasks.n_qry
    (2, 1, 10)
    """

    z_sup: Tensor
    y_sup: Tensor
    z_qry: Tensor
    n_way: int

    def __repr__(self) -> str:
        shapes = (
            f"{name}={list(getattr(self, name).shape)}" for name in ("z_sup", "y_sup", "z_qry")
        )
        return f"TaskBatch({', '.join(shapes)}, n_way={self.n_way})"

    def __len__(self) -> int:
        return self.z_sup.shape[0]

    def __getitem__(self, which: slice | Tensor) -> "TaskBatch":
        """Select tasks by slice, mask or index tensor."""
        return TaskBatch(self.z_sup[which], self.y_sup[which], self.z_qry[which], self.n_way)

    @property
    def n_sup(self) -> int:
        """Support samples per task."""
        return self.z_sup.shape[1]

    @property
    def n_qry(self) -> int:
        """Query samples per task."""
        return self.z_qry.shape[1]

    @property
    def dim(self) -> int:
        """Width of the features."""
        return self.z_sup.shape[2]


class Status(IntEnum):
    """The result status of one task.

    ``DIVERGED``: its objective ended higher than it was on the way, because steps overshoot.

    Examples
    --------
    >>> from infoshot import Status, TimAdm, solve
    >>> from infoshot.tasks import gaussian_tasks
    >>> tasks, _ = gaussian_tasks(n_tasks=1)
    >>> Status(int(solve(TimAdm(tolerance=0.01), tasks).status[0])).name
    'CONVERGED'
    """

    RAN_ALL_STEPS = 0
    CONVERGED = 1
    NON_FINITE = 2
    DIVERGED = 3


@dataclass(frozen=True, eq=False)
class Trace:
    """The terms of the objective at every step; column 0 is the start.

    Terms have shape ``(task, n_steps + 1)``; a task that stopped early keeps its last value.
    ``seconds`` has shape ``(n_steps + 1,)``: the solving time of all tasks so far, without the
    cost of recording.

    Examples
    --------
    >>> from infoshot import TimAdm, solve
    >>> from infoshot.tasks import gaussian_tasks
    >>> tasks, _ = gaussian_tasks(n_tasks=2)
    >>> trace = solve(TimAdm(n_steps=20), tasks, record_trace=True).trace
    >>> trace.loss.shape
    torch.Size([2, 21])
    >>> bool((trace.mutual_information[:, -1] > trace.mutual_information[:, 0]).all())
    True
    """

    cross_entropy: Tensor
    marginal_entropy: Tensor
    conditional_entropy: Tensor
    loss: Tensor
    seconds: Tensor

    @property
    def mutual_information(self) -> Tensor:
        """Mutual information of queries and predictions (alpha = 1), as in the paper's figure."""
        return self.marginal_entropy - self.conditional_entropy


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The result of a solve.

    Parameters
    ----------
    probabilities
        Shape ``(task, query, class)``.
    prototypes
        The classifier's weights, shape ``(task, class, dim)``.
    status
        A :class:`Status` per task, shape ``(task,)``.
    n_steps
        Steps taken per task, shape ``(task,)``.
    outlier_scores
        How unlikely it is that each query belongs to any class, shape ``(task, query)``. One minus
        the largest probability for methods without a score of their own.
    temperatures
        Temperature at which the prototypes classify new samples, shape ``(task,)``.
    notes
        One sentence per task about what the method decided; empty for most methods.
    trace
        The trace of the solve, if it was recorded.

    Examples
    --------
    >>> from infoshot import TimAdm, solve
    >>> from infoshot.tasks import gaussian_tasks
    >>> tasks, _ = gaussian_tasks(n_tasks=2, n_way=3)
    >>> solution = solve(TimAdm(), tasks)
    >>> solution
    Solution(2 tasks, 45 queries, 3 classes: 2 ran all steps)
    >>> solution.probabilities.shape, solution.prototypes.shape
    (torch.Size([2, 45, 3]), torch.Size([2, 3, 32]))
    """

    probabilities: Tensor
    prototypes: Tensor
    status: Tensor
    n_steps: Tensor
    outlier_scores: Tensor
    temperatures: Tensor
    notes: tuple[str, ...] = ()
    trace: Trace | None = None

    def __repr__(self) -> str:
        n_tasks, n_qry, n_way = self.probabilities.shape
        ended = ", ".join(
            f"{int((self.status == status).sum())} {status.name.lower().replace('_', ' ')}"
            for status in Status
            if (self.status == status).any()
        )
        return f"Solution({n_tasks} tasks, {n_qry} queries, {n_way} classes: {ended})"


@dataclass(frozen=True)
class ResultRow:
    """One result of a benchmark: settings, accuracies in percent, calibration, time, environment.

    ``mean`` is the mean accuracy over the tasks and ``ci95`` the half-width of its 95 % interval.
    ``assumes`` lists the assumptions of the method. ``macro`` is the accuracy averaged over classes
    and ``macro_f1`` the F1 score averaged over classes, both in percent; ``nll`` is the negative
    log-likelihood in nats and ``ece`` the expected calibration error in percent. ``auroc``, for
    open sets only, is the area under the ROC curve of the outlier scores in percent, with the
    half-width of its interval. ``memory_mb`` is the peak memory of the run above what was in use
    before it. ``note`` says if queries came from other classes because a class has too few samples.
    ``diverged`` counts the tasks whose solve diverged, see :class:`Status`.
    ``accuracies_key`` is the name of the per-task accuracies in the file of accuracies.

    Examples
    --------
    >>> from infoshot import bench
    >>> row = bench(methods="tim-adm", shots=5, tasks=20).rows[0]
    >>> row.method, row.shots, row.tasks, row.accuracies_key
    ('tim-adm', 5, 20, 'tim-adm/5-way/5-shot/balanced')
    >>> 70 < row.mean < 90
    True
    """

    method: str
    ways: int
    shots: int
    queries: int
    tasks: int
    seed: int
    regime: str
    mean: float
    ci95: float
    seconds: float
    per_task_ms: float
    device: str
    dtype: str
    features: str
    features_digest: str
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    assumes: tuple[str, ...] = ()  # files of earlier versions lack the fields from here on
    macro: float = math.nan
    nll: float = math.nan
    ece: float = math.nan
    auroc: float = math.nan
    auroc_ci95: float = math.nan
    memory_mb: float = math.nan
    macro_f1: float = math.nan
    note: str = ""
    diverged: int = 0
    accuracies_key: str = ""
