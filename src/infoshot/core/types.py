"""What travels between the rooms: feature tables, batches of tasks, solutions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of many samples, with their labels and where they came from.

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
        Where the features came from, as text.
    """

    features: Tensor
    labels: Tensor
    base_mean: Tensor | None = None
    class_names: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def class_name(self, label: int) -> str:
        """Name of a class for people; its number where there is no name."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)


@dataclass(frozen=True, eq=False, repr=False)
class TaskBatch:
    """Many few-shot tasks of one shape. There is no place for query labels, on purpose.

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
        """Some of the tasks, by slice, mask or index tensor."""
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
    """How the solve of one task ended."""

    RAN_ALL_STEPS = 0
    CONVERGED = 1
    NON_FINITE = 2


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened step by step; column 0 is the start, before any step.

    Terms have shape ``(task, n_steps + 1)``; a task that stopped early keeps its last value.
    ``seconds`` has shape ``(n_steps + 1,)``: solving time so far of all tasks together, without
    what the recording itself costs.
    """

    cross_entropy: Tensor
    marginal_entropy: Tensor
    conditional_entropy: Tensor
    loss: Tensor
    seconds: Tensor

    @property
    def mutual_information(self) -> Tensor:
        """Mutual information of queries and predictions, alpha = 1, as in the paper's figure."""
        return self.marginal_entropy - self.conditional_entropy


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """What a solver found.

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
        How little each query belongs to any of the classes, shape ``(task, query)``; larger is
        stranger. One minus the largest probability for methods without a score of their own.
    notes
        For every task what a user should know of its solve, in words; empty if the method has
        nothing to say.
    trace
        The course of the solve, if it was asked for.
    """

    probabilities: Tensor
    prototypes: Tensor
    status: Tensor
    n_steps: Tensor
    outlier_scores: Tensor
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
    ``accuracies_key`` is the name of the per-task accuracies in the file of accuracies.
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
    accuracies_key: str = ""
