"""Few-shot tasks drawn from a table of features: which samples are support, which are queries.

Task ``i`` depends on the seed and on ``i`` only: not on how many tasks are drawn, in which chunks,
or on which device. The query labels come back beside the batch, never in it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot import checks
from infoshot.errors import DataError, InvalidArgumentError
from infoshot.rng import choose
from infoshot.types import FeatureTable, TaskBatch

_CLASSES, _SAMPLES = 0, 1  # streams of random numbers


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a task is: classes, labelled samples per class, queries per class, and the seed."""

    n_way: int = 5
    n_shot: int = 1
    n_query: int = 15
    seed: int = 0

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        checks.at_least("n_way", self.n_way, 2)
        checks.at_least("n_shot", self.n_shot, 1)
        checks.at_least("n_query", self.n_query, 1)
        checks.at_least("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise InvalidArgumentError(f"seed must be at most {2**63 - 1}; got {self.seed}.")


class TaskSampler:
    """Draws balanced tasks as positions in a feature table.

    Parameters
    ----------
    table
        Where to draw from; samples labelled -1 are never drawn.
    spec
        What a task is.

    Raises
    ------
    DataError
        If there are too few classes, or a class has fewer samples than a task needs of it.
    """

    def __init__(self, table: FeatureTable, spec: TaskSpec) -> None:
        spec.validate()
        self.spec = spec
        labels = table.labels
        self._samples = labels.argsort(stable=True)[int((labels < 0).sum()) :]
        classes, self._sizes = labels[self._samples].unique_consecutive(return_counts=True)
        self._starts = self._sizes.cumsum(0) - self._sizes
        self._check(table, classes)

    def draw(self, tasks: range) -> tuple[Tensor, Tensor]:
        """Positions in the table of support and queries of these tasks.

        Returns
        -------
        Support, shape ``(task, n_way * n_shot)``, and queries, shape ``(task, n_way * n_query)``,
        both class after class.
        """
        spec, device = self.spec, self._samples.device
        ids = torch.arange(tasks.start, tasks.stop, tasks.step, device=device)
        n_classes = torch.full((len(ids),), len(self._sizes), device=device)
        classes = choose(spec.seed, _CLASSES, ids, n_classes, spec.n_way)
        n_each = spec.n_shot + spec.n_query
        within = choose(spec.seed, _SAMPLES, ids, self._sizes[classes], n_each)
        positions = self._samples[self._starts[classes].unsqueeze(-1) + within]
        support, query = positions.split((spec.n_shot, spec.n_query), dim=-1)
        return support.flatten(1), query.flatten(1)

    def labels(self, n_tasks: int) -> tuple[Tensor, Tensor]:
        """Labels from 0 to ``n_way - 1`` of support and queries, in the order of :meth:`draw`."""
        spec, device = self.spec, self._samples.device
        classes = torch.arange(spec.n_way, device=device)
        support = classes.repeat_interleave(spec.n_shot).expand(n_tasks, -1)
        return support, classes.repeat_interleave(spec.n_query).expand(n_tasks, -1)

    def _check(self, table: FeatureTable, classes: Tensor) -> None:
        spec = self.spec
        if len(classes) < spec.n_way:
            raise DataError(
                f"sample_tasks: n_way must be at most {len(classes)}, the number of classes in the "
                f"table; got {spec.n_way}."
            )
        smallest = int(self._sizes.argmin())
        available, needed = int(self._sizes[smallest]), spec.n_shot + spec.n_query
        if available < needed:
            name = table.class_name(int(classes[smallest]))
            raise DataError(
                f"sample_tasks: n_shot + n_query must be at most {available} for class '{name}' "
                f"(it has {available} samples); got {spec.n_shot} + {spec.n_query}. "
                "Lower n_query (--queries), or use a table with more labelled samples."
            )


def sample_tasks(
    table: FeatureTable, spec: TaskSpec, n_tasks: int, *, start: int = 0
) -> tuple[TaskBatch, Tensor]:
    """Draw tasks ``start`` to ``start + n_tasks - 1`` of a specification.

    Features are taken from the table as they are; normalise the table first.

    Returns
    -------
    The tasks, and the query labels, shape ``(task, query)``, for whoever computes the accuracy.

    Examples
    --------
    >>> table = FeatureTable(torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
    >>> tasks, query_labels = sample_tasks(table, TaskSpec(n_way=2, n_query=2), n_tasks=3)
    >>> tasks.z_sup.shape, query_labels.shape
    (torch.Size([3, 2, 6]), torch.Size([3, 4]))
    """
    checks.at_least("n_tasks", n_tasks, 1)
    if start < 0:
        raise InvalidArgumentError(f"start must be at least 0; got {start}.")
    return gather_tasks(table, TaskSampler(table, spec), range(start, start + n_tasks))


def gather_tasks(
    table: FeatureTable, sampler: TaskSampler, tasks: range
) -> tuple[TaskBatch, Tensor]:
    """Features and query labels of some tasks of a sampler made from this table."""
    support, query = sampler.draw(tasks)
    y_sup, y_qry = sampler.labels(len(tasks))
    z_sup, z_qry = table.features[support], table.features[query]
    return TaskBatch(z_sup, y_sup, z_qry, sampler.spec.n_way), y_qry
