"""Which cells are run on which features, checked before any work, and the running of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from infoshot.benchmark import Protocol, score_cell
from infoshot.core import checks
from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable
from infoshot.reproduction.experiments import GRADIENT, QUERIES, Cell, cells
from infoshot.reproduction.report_store import Store, cell_key
from infoshot.reproduction.sources import Source
from infoshot.reproduction.whole_network import Network
from infoshot.tasks import TaskSpec

SHIFTED = "mini-to-cub"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run, and how.

    Methods of hundreds of gradient steps run ``n_gradient_tasks`` tasks, those that fine-tune the
    network ``n_network_tasks``, all others ``n_tasks``.
    """

    experiments: Sequence[str]
    n_tasks: int = 10_000
    n_gradient_tasks: int = 300
    n_network_tasks: int = 300
    seed: int = 0
    device: str = "cpu"

    def validate(self) -> None:
        """Raise if a number of tasks is not allowed."""
        checks.at_least("--tasks", self.n_tasks, 1)
        checks.at_least("--gradient-tasks", self.n_gradient_tasks, 1)
        checks.at_least("--network-tasks", self.n_network_tasks, 1)

    def protocol(self, cell: Cell) -> Protocol:
        """How a cell is evaluated."""
        n_tasks = self.n_gradient_tasks if cell.run in GRADIENT else self.n_tasks
        n_tasks = self.n_network_tasks if cell.over_network else n_tasks
        spec = TaskSpec(n_way=cell.ways, n_shot=cell.shots, n_query=QUERIES, seed=self.seed)
        return Protocol(spec=spec, n_tasks=min(n_tasks, self.n_tasks), device=self.device)


@dataclass(frozen=True)
class PlannedCell:
    """A cell on one feature file: under which key its result is kept, or why it is not run."""

    cell: Cell
    source: Source
    protocol: Protocol
    key: str
    not_run: str = ""


def plan_cells(
    plan: Plan,
    features: Sequence[tuple[Source, FeatureTable]],
    network: Network | None = None,
) -> list[PlannedCell]:
    """All cells, each with a reason where the features do not allow it.

    Cells over the whole network belong to the first features, and need its images.

    Raises
    ------
    DataError
        If not even the 5-way tasks of the paper can be drawn.
    """
    planned = []
    for source, table in features:
        for experiment in plan.experiments:
            if (experiment == "table2") != (source.dataset == SHIFTED):
                continue
            for cell in cells(experiment):
                if not cell.over_network:
                    planned.append(_planned(plan, cell, source, table))
                elif source == features[0][0]:
                    planned.append(_planned_network(plan, cell, source, table, network))
    return planned


def check_images(plan: Plan, network: Network) -> None:
    """Raise, before anything is extracted, if 5-way tasks cannot be drawn from the images."""
    for experiment in plan.experiments:
        for cell in cells(experiment):
            if cell.ways == 5:
                network.validate(plan.protocol(cell))


def _planned_network(
    plan: Plan, cell: Cell, source: Source, table: FeatureTable, network: Network | None
) -> PlannedCell:
    protocol = plan.protocol(cell)
    if network is None:
        return PlannedCell(cell, source, protocol, "", "needs images (--checkpoint and --root)")
    network.check_features(table)
    return PlannedCell(cell, source, protocol, network.key(cell, protocol))


def _planned(plan: Plan, cell: Cell, source: Source, table: FeatureTable) -> PlannedCell:
    method, protocol = cell.method(), plan.protocol(cell)
    what = (method.name, method.preparation, method.solver.settings())
    key = cell_key(protocol, source.digest, *what)
    reason = ""
    counts = table.labels[table.labels >= 0].bincount()
    n_classes = int((counts > 0).sum())
    if method.preparation == "centred-l2" and table.base_mean is None:
        reason = "the feature file has no base_mean"
    elif cell.ways > max(5, n_classes):
        reason = f"{cell.ways} classes are needed, there are {n_classes}"
    else:
        _check_rows(source, table, counts, cell)
        protocol.validate(table, method)
    return PlannedCell(cell, source, protocol, key, reason)


def _check_rows(source: Source, table: FeatureTable, counts: Tensor, cell: Cell) -> None:
    """Raise if not even 5-way tasks of the paper can be drawn."""
    n_classes = int((counts > 0).sum())
    if n_classes < cell.ways:
        raise DataError(
            f"{source.name}: the paper's tasks have {cell.ways} classes; got {n_classes}."
        )
    fewest = int(counts.where(counts > 0, counts.max()).argmin())
    needed = cell.shots + QUERIES
    if counts[fewest] < needed:
        raise DataError(
            f"{source.name}: {cell.shots}-shot tasks of the paper need {needed} rows of every "
            f"class; '{table.class_name(fewest)}' has {int(counts[fewest])}."
        )


def run_cells(
    planned: Sequence[PlannedCell],
    features: Sequence[tuple[Source, FeatureTable]],
    store: Store,
    *,
    network: Network | None = None,
    on_cell: Callable[[PlannedCell], None] = lambda cell: None,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> None:
    """Run what is not there yet; after each cell the folder holds all results so far."""
    tables = {source.digest: table for source, table in features}
    for item in planned:
        if item.not_run or item.key in store.rows:
            continue
        on_cell(item)
        cell, source = item.cell, item.source
        if cell.over_network:
            assert network is not None
            row, accuracies = network.score(cell, item.protocol, on_progress)
        else:
            row, accuracies = score_cell(
                tables[source.digest],
                cell.method(),
                item.protocol,
                features_name=source.name,
                features_digest=source.digest,
                on_progress=on_progress,
            )
        store.add(item.key, row, accuracies)
