"""Results by data set, backbone and training.

Feature files of the same data set, backbone and recipe of base training belong to networks that
differ in the seed of their training. They form a :class:`Group`, whose number is the mean over its
networks. So do the runs of a trained system.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.benchmark import with_interval
from infoshot.metrics import mean_interval
from infoshot.reproduction.paper import (
    BACKBONES,
    DATASETS,
    FULL_LOSS,
    OWN_IMAGES,
    TIM,
    Cell,
    Setting,
)
from infoshot.reproduction.paper_systems import PLAIN, has_own_training
from infoshot.reproduction.report_cells import PlannedCell
from infoshot.reproduction.report_sources import Source
from infoshot.reproduction.report_store import Store


@dataclass(frozen=True)
class Group:
    """Feature files, or runs of a system, of one data set, backbone and recipe of training."""

    dataset: str
    backbone: str
    sources: tuple[Source, ...]
    recipe: str = PLAIN

    @property
    def title(self) -> str:
        """Data set, backbone and recipe as text; the file names where one is unknown."""
        dataset = DATASETS.get(self.dataset, self.dataset)
        backbone = BACKBONES.get(self.backbone, self.backbone)
        names = [dataset, backbone] if dataset and backbone else [dataset or backbone]
        names.append(self.recipe)
        if not (dataset and backbone) or self.dataset == OWN_IMAGES:
            names.append(self.files)
        return ", ".join(filter(None, names))

    @property
    def about(self) -> str:
        """The title, with the number of networks where there are several."""
        count = f", {len(self.sources)} networks" if len(self.sources) > 1 else ""
        return self.title + count

    @property
    def files(self) -> str:
        """Names of the feature files."""
        return ", ".join(source.name for source in self.sources)


def group_sources(sources: Iterable[Source]) -> tuple[Group, ...]:
    """Group sources of the same data set, backbone and recipe, in the order of their first one.

    A file of own images, or without a data set or a backbone, is a group of its own.
    """
    members: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        members.setdefault(source.group, []).append(source)
    return tuple(
        Group(found[0].dataset, found[0].backbone, tuple(found), found[0].recipe)
        for found in members.values()
    )


@dataclass(frozen=True)
class Measured:
    """A number of a group, in percent.

    Attributes
    ----------
    mean
        Mean over the networks.
    ci95
        Half of the 95% interval over tasks, of the accuracy that is averaged over the networks.
    networks
        The mean of each network.
    n_tasks
        Tasks per network.
    """

    mean: float
    ci95: float
    networks: tuple[float, ...]
    n_tasks: int

    @property
    def spread(self) -> float:
        """Sample standard deviation over three networks or more, range of two, NaN for one."""
        if len(self.networks) == 1:
            return math.nan
        if len(self.networks) == 2:
            return abs(self.networks[0] - self.networks[1])
        return statistics.stdev(self.networks)

    @property
    def spread_text(self) -> str:
        """The spread as text, such as ``s 0.41``; empty for one network."""
        if len(self.networks) == 1:
            return ""
        return f"{'range' if len(self.networks) == 2 else 's'} {self.spread:.2f}"

    @property
    def text(self) -> str:
        """The mean with its interval over tasks."""
        return with_interval(self.mean, self.ci95)


def measure(accuracies: Sequence[Tensor]) -> Measured:
    """Average the accuracies of a cell over networks, given between 0 and 1 for each task.

    Task i is the same for all networks of a data set, so that its accuracy is averaged over the
    networks first, and the interval over tasks is that of these averages.

    Examples
    --------
    >>> number = measure([torch.tensor([0.5, 0.7]), torch.tensor([0.7, 0.7])])
    >>> f"{number.mean:.1f} ± {number.ci95:.1f}, {number.spread_text}"
    '65.0 ± 9.8, range 10.00'
    """
    n_tasks = min(map(len, accuracies))
    stacked = 100 * torch.stack([tasks[:n_tasks].double() for tasks in accuracies])
    mean, half_width = mean_interval(stacked.mean(0))
    networks = tuple(float(value) for value in stacked.mean(1))
    return Measured(mean, half_width, networks, n_tasks)


class Results:
    """The results of a report by group and setting.

    Parameters
    ----------
    planned
        All cells of the report.
    store
        What was computed.

    Attributes
    ----------
    groups
        Networks that all methods share.
    systems
        Networks of systems with their own training, which only fill the rows of these systems.
    """

    def __init__(self, planned: Sequence[PlannedCell], store: Store) -> None:
        groups = group_sources([*store.sources, *(run.source for run in store.systems)])
        self.groups = tuple(g for g in groups if not has_own_training(g.recipe))
        self.systems = tuple(g for g in groups if has_own_training(g.recipe))
        self.planned = planned
        self._store = store
        self._cells: dict[tuple[str, Setting], PlannedCell] = {
            (item.source.digest, item.cell.setting): item for item in planned
        }

    def find(self, group: Group, setting: Setting) -> list[PlannedCell]:
        """Return the planned cell of each network that has one."""
        found = (self._cells.get((source.digest, setting)) for source in group.sources)
        return [item for item in found if item is not None]

    def is_stored(self, item: PlannedCell) -> bool:
        """Whether a cell has a result, also one that was computed elsewhere."""
        return item.key in self._store.rows

    def n_tasks(self, group: Group, setting: Setting) -> set[int]:
        """Return the numbers of tasks that the networks of a group have."""
        stored = filter(self.is_stored, self.find(group, setting))
        return {self._store.rows[item.key].tasks for item in stored}

    def assumes(self, group: Group, cell: Cell) -> tuple[str, ...]:
        """Return what a number assumes, and whether the scatter of the base classes was used."""
        stored = filter(self.is_stored, self.find(group, cell.setting))
        used = [name for item in stored for name in self._store.rows[item.key].assumes]
        return (*(["base-scatter"] if "base-scatter" in used else []), *cell.assumes)

    def measured(self, group: Group, setting: Setting) -> Measured | None:
        """Return the number of a group, if at least one of its networks has it."""
        keys = [item.key for item in self.find(group, setting) if self.is_stored(item)]
        if not keys:
            return None
        number = measure([self._store.accuracies[key] for key in keys])
        if len(keys) > 1:
            return number
        row = self._store.rows[keys[0]]
        return Measured(row.mean, row.ci95, (row.mean,), row.tasks)

    def training_shots(self, group: Group) -> list[int]:
        """Return the numbers of shots that the runs of a trained system were trained with."""
        digests = {source.digest for source in group.sources}
        runs = (run for run in self._store.systems if run.source.digest in digests)
        return sorted({run.shots for run in runs if run.shots})

    def accuracies(self, group: Group) -> list[dict[Setting, Tensor]]:
        """Return the accuracies of all tasks for each network, by setting.

        TIM of Table 1 is the full loss over the class weights of the ablation.
        """
        return [self._of_source(source) for source in group.sources]

    def _of_source(self, source: Source) -> dict[Setting, Tensor]:
        found: dict[Setting, Tensor] = {}
        for item in self.planned:
            if item.source.digest != source.digest or not self.is_stored(item):
                continue
            name, parameters, _, ways, shots = item.cell.setting
            found[item.cell.setting] = self._store.accuracies[item.key]
            if name in TIM and not parameters and ways == 5:
                found[name, "W", FULL_LOSS, ways, shots] = self._store.accuracies[item.key]
        return found
