"""Few-shot tasks drawn from a feature table: which samples are support, which are queries.

Task ``i`` depends only on the seed and on ``i``: not on the number of tasks, the chunks they are
drawn in, or the device. Query labels are returned beside the batch, never in it.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.rng import choose
from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.tasks.regimes import Regime, even_counts, move_excess

_CLASSES, _SAMPLES = 0, 1  # streams of random numbers


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a task is: number of classes, labelled samples per class, queries, and the seed.

    ``n_query`` is per class; the ``regime`` decides how many queries each class has.

    Examples
    --------
    >>> from infoshot import TaskSpec
    >>> spec = TaskSpec(n_way=10, n_shot=5)
    >>> spec.n_query, str(spec.regime)
    (15, 'balanced')
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
        checks.seed("seed", self.seed)
        self.regime.validate(self.n_way, self.n_query)


class TaskSampler:
    """Draws tasks as positions in a feature table.

    If a class has fewer samples than the regime asks of it, the task takes the samples that the
    class has left after its support; the other queries come from the other classes of the task
    (:func:`infoshot.tasks.regimes.move_excess`). All tasks have the same number of queries.
    :meth:`moved_queries` counts such queries. Balanced tasks are refused instead.

    Parameters
    ----------
    table
        The features and labels to draw from; samples labelled -1 are never drawn.
    spec
        What a task is.

    Raises
    ------
    DataError
        If there are too few classes, or too few samples for some task.

    Examples
    --------
    >>> table = FeatureTable(torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]))
    >>> sampler = TaskSampler(table, TaskSpec(n_way=2, n_query=2))
    >>> support, query = sampler.draw(range(3))  # positions in the table
    >>> support.shape, query.shape
    (torch.Size([3, 2]), torch.Size([3, 4]))
    """

    def __init__(self, table: FeatureTable, spec: TaskSpec) -> None:
        spec.validate()
        self.spec = spec
        labels = table.labels
        self._samples = labels.argsort(stable=True)[int((labels < 0).sum()) :]
        classes, self._sizes = labels[self._samples].unique_consecutive(return_counts=True)
        self._starts = self._sizes.cumsum(0) - self._sizes
        # Outliers come from as many further classes as the task has, if the table has so many.
        n_outliers = spec.regime.n_outliers()
        self._n_extra = min(spec.n_way, len(classes) - spec.n_way) if n_outliers else 0
        self._check_classes(len(classes))
        self._most = spec.regime.most_of_a_class(spec.n_way, spec.n_query)
        if n_outliers:
            self._most = max(self._most, math.ceil(n_outliers / self._n_extra))
        self._short = int(self._sizes.min()) < spec.n_shot + self._most
        if self._short:
            self._check_sizes(table, classes)
            # Queries of one class may move to another, as many as it has samples.
            n_queries = spec.regime.n_queries(spec.n_way, spec.n_query)
            self._most = min(n_queries, int(self._sizes.max()) - spec.n_shot)

    def draw(self, tasks: range) -> tuple[Tensor, Tensor]:
        """Positions in the table of the support and the queries of these tasks.

        Returns
        -------
        Support, shape ``(task, n_way * n_shot)``, and queries, shape ``(task, query)``, both sorted
        by class; queries without support come last.
        """
        spec = self.spec
        ids, classes = self._classes(tasks)
        n_each = spec.n_shot + self._most
        sizes = self._sizes[classes]
        within = choose(spec.seed, _SAMPLES, ids, sizes.clamp(min=n_each), n_each)
        if self._short:
            within = _existing_first(within, sizes)
        positions = self._samples[self._starts[classes].unsqueeze(-1) + within]
        support, query = positions.split((spec.n_shot, self._most), dim=-1)
        return support[:, : spec.n_way].flatten(1), self._select_queries(tasks, query)

    def labels(self, tasks: range) -> tuple[Tensor, Tensor]:
        """Labels from 0 to ``n_way - 1`` of support and queries, in the order of :meth:`draw`.

        Queries of classes without support are labelled -1.
        """
        spec, device = self.spec, self._samples.device
        ways = torch.arange(spec.n_way, device=device)
        support = ways.repeat_interleave(spec.n_shot).expand(len(tasks), -1)
        extra = ways.new_full((self._n_extra,), -1)
        query = torch.cat((ways, extra)).view(1, -1, 1).expand(len(tasks), -1, self._most)
        return support, self._select_queries(tasks, query)

    def moved_queries(self, tasks: range) -> Tensor:
        """Queries per task that come from another class because theirs has too few samples.

        Shape ``(task,)``, int64, on the CPU.
        """
        if not self._short:
            return torch.zeros(len(tasks), dtype=torch.int64)
        wanted = self._counts(tasks, limited=False)
        return (wanted - self._counts(tasks)).clamp(min=0).sum(1)

    def _classes(self, tasks: range) -> tuple[Tensor, Tensor]:
        """Task numbers, and the classes of each task, shape ``(task, n_way + n_extra)``."""
        spec, device = self.spec, self._samples.device
        ids = torch.arange(tasks.start, tasks.stop, tasks.step, device=device)
        n_classes = torch.full((len(ids),), len(self._sizes), device=device)
        return ids, choose(spec.seed, _CLASSES, ids, n_classes, spec.n_way + self._n_extra)

    def _counts(self, tasks: range, *, limited: bool = True) -> Tensor:
        """Queries of each class, shape ``(task, n_way + n_extra)``.

        Computed on the CPU for any device: the counts come from floating-point numbers.
        """
        spec, regime = self.spec, self.spec.regime
        what = (spec.n_way, spec.n_query, spec.seed)
        ids = torch.arange(tasks.start, tasks.stop, tasks.step)
        if not (self._short and limited):
            counts, limits = regime.counts(*what, ids), None
        else:
            limits = (self._sizes[self._classes(tasks)[1]] - spec.n_shot).cpu()
            counts = regime.limited_counts(*what, ids, limits[:, : spec.n_way])
        if not self._n_extra:
            return counts
        outliers = even_counts(regime.n_outliers(), self._n_extra).expand(len(ids), -1)
        if limits is not None:
            outliers = move_excess(outliers, torch.ones_like(outliers), limits[:, spec.n_way :])
        return torch.cat((counts, outliers), 1)

    def _select_queries(self, tasks: range, drawn: Tensor) -> Tensor:
        """The queries among the samples drawn of each class, shape ``(task, class, sample)``."""
        if self.spec.regime.kind == "balanced":  # all of them; a mask would make a GPU wait
            return drawn.flatten(1)
        chosen = torch.arange(self._most) < self._counts(tasks).unsqueeze(-1)
        return drawn[chosen.to(drawn.device)].view(len(tasks), -1)

    def _check_classes(self, n_classes: int) -> None:
        spec = self.spec
        if n_classes < spec.n_way:
            raise DataError(
                f"sample_tasks: n_way must be at most {n_classes}, the number of classes in the "
                f"table; got {spec.n_way}."
            )
        if spec.regime.n_outliers() and self._n_extra == 0:
            raise DataError(
                f"sample_tasks: the regime '{spec.regime}' needs classes without support, but all "
                f"{n_classes} classes of the table belong to each {spec.n_way}-way task."
            )

    def _check_sizes(self, table: FeatureTable, classes: Tensor) -> None:
        """Raise if some task cannot be drawn although queries may move to other classes."""
        spec, regime = self.spec, self.spec.regime
        available = int(self._sizes.min())
        name = table.class_name(int(classes[self._sizes.argmin()]))
        if regime.kind == "balanced":
            raise DataError(
                f"sample_tasks: n_shot + n_query must be at most {available} for class '{name}' "
                f"(it has {available} samples); got {spec.n_shot} + {spec.n_query}. "
                "Lower n_query, or use a table with more labelled samples."
            )
        if available < spec.n_shot:
            raise DataError(
                f"sample_tasks: n_shot must be at most {available} for class '{name}' (it has "
                f"{available} samples); got {spec.n_shot}."
            )
        left = (self._sizes - spec.n_shot).sort().values
        n_outliers = regime.n_outliers()
        needs = (
            (regime.n_present(spec.n_way), regime.n_queries(spec.n_way, spec.n_query) - n_outliers),
            (self._n_extra, n_outliers),
        )
        for n_classes, n_queries in needs:
            n_left = int(left[:n_classes].sum())
            if n_left < n_queries:
                raise DataError(
                    f"sample_tasks: the regime '{regime}' needs {n_queries} queries from "
                    f"{n_classes} classes; the smallest {n_classes} have {n_left} samples left "
                    f"after n_shot = {spec.n_shot}. Lower n_query or the regime's N, or use a "
                    "table with more labelled samples."
                )


def _existing_first(within: Tensor, sizes: Tensor) -> Tensor:
    """Move the numbers below the size of their class to the front, in their random order.

    A class smaller than the number of draws gets a permutation of that many numbers, so those below
    its size are in uniformly random order. The numbers behind them stand for no sample: counts
    never reach them, and they are replaced by 0 to be valid positions.
    """
    missing = within >= sizes.unsqueeze(-1)
    order = missing.byte().argsort(dim=-1, stable=True)
    return within.masked_fill(missing, 0).gather(-1, order)


def sample_tasks(
    table: FeatureTable, spec: TaskSpec, n_tasks: int, *, start: int = 0
) -> tuple[TaskBatch, Tensor]:
    """Draw tasks ``start`` to ``start + n_tasks - 1`` of a specification.

    Features are taken from the table unchanged; normalise the table first.

    Parameters
    ----------
    table
        Features and labels; samples labelled -1 are never drawn.
    spec
        What a task is.
    n_tasks, start
        How many tasks, and the index of the first. Task ``i`` depends only on the seed and ``i``.

    Returns
    -------
    The tasks, and the query labels, shape ``(task, query)``, to compute accuracies with; -1 for
    queries of classes without support.

    Raises
    ------
    InvalidArgumentError
        If a number is not allowed.
    DataError
        If the table has too few classes or samples.

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
    """Features and query labels of some tasks; the sampler must be of this table."""
    support, query = sampler.draw(tasks)
    y_sup, y_qry = sampler.labels(tasks)
    z_sup, z_qry = table.features[support], table.features[query]
    return TaskBatch(z_sup, y_sup, z_qry, sampler.spec.n_way), y_qry
