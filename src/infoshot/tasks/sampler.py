"""Few-shot tasks drawn from a table of features: which samples are support, which are queries.

Task ``i`` depends on the seed and on ``i`` only: not on how many tasks are drawn, in which chunks,
or on which device. The query labels come back beside the batch, never in it.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.rng import choose
from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.tasks.regimes import Regime, even_counts

_CLASSES, _SAMPLES = 0, 1  # streams of random numbers


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a task is: classes, labelled samples per class, queries, and the seed.

    ``n_query`` is per class; how queries fall on the classes is the ``regime``.
    """

    n_way: int = 5
    n_shot: int = 1
    n_query: int = 15
    seed: int = 0
    regime: Regime = field(default_factory=Regime)

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        checks.at_least("n_way", self.n_way, 2)
        checks.at_least("n_shot", self.n_shot, 1)
        checks.at_least("n_query", self.n_query, 1)
        checks.at_least("seed", self.seed, 0)
        if self.seed >= 2**63:
            raise InvalidArgumentError(f"seed must be at most {2**63 - 1}; got {self.seed}.")
        self.regime.validate(self.n_way, self.n_query)


class TaskSampler:
    """Draws tasks as positions in a feature table.

    Parameters
    ----------
    table
        Where to draw from; samples labelled -1 are never drawn.
    spec
        What a task is.

    Raises
    ------
    DataError
        If there are too few classes, or a class has fewer samples than a task may need of it.
    """

    def __init__(self, table: FeatureTable, spec: TaskSpec) -> None:
        spec.validate()
        self.spec = spec
        labels = table.labels
        self._samples = labels.argsort(stable=True)[int((labels < 0).sum()) :]
        classes, self._sizes = labels[self._samples].unique_consecutive(return_counts=True)
        self._starts = self._sizes.cumsum(0) - self._sizes
        # Queries without support come from as many further classes as the task has, if there are.
        n_outliers = spec.regime.n_outliers()
        self._n_extra = min(spec.n_way, len(classes) - spec.n_way) if n_outliers else 0
        self._check_classes(len(classes))
        self._most = spec.regime.most_of_a_class(spec.n_way, spec.n_query)
        if n_outliers:
            self._most = max(self._most, math.ceil(n_outliers / self._n_extra))
        self._check_sizes(table, classes)

    def draw(self, tasks: range) -> tuple[Tensor, Tensor]:
        """Positions in the table of support and queries of these tasks.

        Returns
        -------
        Support, shape ``(task, n_way * n_shot)``, and queries, shape ``(task, query)``, both class
        after class; queries without support come last.
        """
        spec, device = self.spec, self._samples.device
        ids = torch.arange(tasks.start, tasks.stop, tasks.step, device=device)
        n_classes = torch.full((len(ids),), len(self._sizes), device=device)
        classes = choose(spec.seed, _CLASSES, ids, n_classes, spec.n_way + self._n_extra)
        n_each = spec.n_shot + self._most
        within = choose(spec.seed, _SAMPLES, ids, self._sizes[classes], n_each)
        positions = self._samples[self._starts[classes].unsqueeze(-1) + within]
        support, query = positions.split((spec.n_shot, self._most), dim=-1)
        return support[:, : spec.n_way].flatten(1), self._chosen(tasks, query)

    def labels(self, tasks: range) -> tuple[Tensor, Tensor]:
        """Labels from 0 to ``n_way - 1`` of support and queries, in the order of :meth:`draw`.

        Queries of classes without support are labelled -1.
        """
        spec, device = self.spec, self._samples.device
        ways = torch.arange(spec.n_way, device=device)
        support = ways.repeat_interleave(spec.n_shot).expand(len(tasks), -1)
        extra = ways.new_full((self._n_extra,), -1)
        query = torch.cat((ways, extra)).view(1, -1, 1).expand(len(tasks), -1, self._most)
        return support, self._chosen(tasks, query)

    def _chosen(self, tasks: range, drawn: Tensor) -> Tensor:
        """Those of the samples drawn of each class, ``(task, class, sample)``, that are queries."""
        spec = self.spec
        if spec.regime.kind == "balanced":  # all of them; a mask would make a GPU wait
            return drawn.flatten(1)
        # On the CPU whatever the device: the counts come from floating-point numbers.
        ids = torch.arange(tasks.start, tasks.stop, tasks.step)
        counts = spec.regime.counts(spec.n_way, spec.n_query, spec.seed, ids)
        if self._n_extra:
            outliers = even_counts(spec.regime.n_outliers(), self._n_extra)
            counts = torch.cat((counts, outliers.expand(len(ids), -1)), 1)
        chosen = torch.arange(self._most) < counts.unsqueeze(-1)
        return drawn[chosen.to(drawn.device)].view(len(tasks), -1)

    def _check_classes(self, n_classes: int) -> None:
        spec = self.spec
        if n_classes < spec.n_way:
            raise DataError(
                f"sample_tasks: n_way must be at most {n_classes}, the number of classes in the "
                f"table; got {spec.n_way} (--ways)."
            )
        if spec.regime.n_outliers() and self._n_extra == 0:
            raise DataError(
                f"sample_tasks: the regime '{spec.regime}' needs classes without support; the "
                f"table has {n_classes}, and {spec.n_way} are the task's own."
            )

    def _check_sizes(self, table: FeatureTable, classes: Tensor) -> None:
        spec = self.spec
        smallest = int(self._sizes.argmin())
        available = int(self._sizes[smallest])
        if available >= spec.n_shot + self._most:
            return
        name = table.class_name(int(classes[smallest]))
        if spec.regime.kind == "balanced":
            raise DataError(
                f"sample_tasks: n_shot + n_query must be at most {available} for class '{name}' "
                f"(it has {available} samples); got {spec.n_shot} + {spec.n_query}. "
                "Lower n_query (--queries), or use a table with more labelled samples."
            )
        raise DataError(
            f"sample_tasks: the regime '{spec.regime}' may need {spec.n_shot} + {self._most} "
            f"samples of a class, support and queries; class '{name}' has {available}. Take "
            "fewer queries (--queries, or N of the regime), or a table with more labelled samples."
        )


def sample_tasks(
    table: FeatureTable, spec: TaskSpec, n_tasks: int, *, start: int = 0
) -> tuple[TaskBatch, Tensor]:
    """Draw tasks ``start`` to ``start + n_tasks - 1`` of a specification.

    Features are taken from the table as they are; normalise the table first.

    Returns
    -------
    The tasks, and the query labels, shape ``(task, query)``, for whoever computes the accuracy; -1
    for queries of classes without support.

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
    y_sup, y_qry = sampler.labels(tasks)
    z_sup, z_qry = table.features[support], table.features[query]
    return TaskBatch(z_sup, y_sup, z_qry, sampler.spec.n_way), y_qry
