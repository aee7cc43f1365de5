"""The cells of a report: which of them run on which features.

All checks happen in :func:`plan_cells`, before any work. Each planned cell has a key, the digest of
everything its numbers depend on.
"""

import dataclasses
import hashlib
import inspect
import json
import uuid
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.backbones import Encoder
from infoshot.benchmark import Protocol
from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable, Preparation
from infoshot.features import choose_preparation, digest
from infoshot.images import ImageSplit
from infoshot.reproduction.adaptation import Adaptation
from infoshot.reproduction.paper import (
    QUERIES,
    SHIFTED,
    Cell,
    cells,
    recipe_cells,
)
from infoshot.reproduction.paper_systems import SystemForm, has_own_training
from infoshot.reproduction.report_sources import FeatureFile, Loaded, Source, describe_file
from infoshot.reproduction.whole_network import Network, fine_tuning, network_identity
from infoshot.solvers import Method, Solver
from infoshot.tasks import TaskSpec

NEEDS_IMAGES = "needs images (checkpoint and root)"
NEEDS_IMAGES_OF_SYSTEM = "needs the trained system and images (systems and root)"
# Gradient methods take several hundred steps, or learn a classifier in fewer but slower ones.
_GRADIENT = frozenset({"baseline", "baseline++", "baseline-sgd", "baseline++-sgd", "neg-cosine"})
_MANY_STEPS = 500
_MAP_TASKS = 1000  # at least, for systems that read feature maps


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run, and how.

    Gradient methods run ``n_gradient_tasks`` tasks. Methods that fine-tune the network and systems
    that read images run ``n_network_tasks``, systems that read feature maps run as many but at
    least 1,000. All others run ``n_tasks``, and none runs more. ``methods`` are added to those of
    the paper.
    """

    experiments: Sequence[str]
    methods: Sequence[Method] = ()
    n_tasks: int = 10_000
    n_gradient_tasks: int = 300
    n_network_tasks: int = 300
    seed: int = 0
    device: str = "cpu"

    def cells(self, experiment: str, source: Source | None = None) -> list[Cell]:
        """Return the cells of an experiment, those of added methods included.

        The features of a system with its own base training only fill the rows of the system.
        """
        if source is not None and has_own_training(source.recipe):
            return recipe_cells(experiment, source.recipe, self.methods)
        return cells(experiment, self.methods)

    def cells_of(self, source: Source) -> Iterator[Cell]:
        """Yield the cells of a feature file: Table 2 has those of the shifted data set only."""
        for experiment in self.experiments:
            if (experiment == "table2") == (source.dataset == SHIFTED):
                yield from self.cells(experiment, source)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how a cell is evaluated."""
        n_tasks = min(self._n_tasks(cell), self.n_tasks)
        spec = TaskSpec(n_way=cell.ways, n_shot=cell.shots, n_query=QUERIES, seed=self.seed)
        return Protocol(spec=spec, n_tasks=n_tasks, device=self.device)

    def _n_tasks(self, cell: Cell) -> int:
        run = cell.run
        if isinstance(run, SystemForm):
            n_maps = max(_MAP_TASKS, self.n_network_tasks)
            return {"maps": n_maps, "images": self.n_network_tasks}.get(run.reads, self.n_tasks)
        if cell.over_network:
            return self.n_network_tasks
        is_slow = run.name in _GRADIENT or run.solver.n_steps >= _MANY_STEPS
        return self.n_gradient_tasks if is_slow else self.n_tasks


@dataclass(frozen=True)
class PlannedCell:
    """A cell on one feature file, with the key of its result or the reason why it does not run."""

    cell: Cell
    source: Source
    protocol: Protocol
    key: str
    not_run: str = ""


def plan_cells(
    plan: Plan, features: Sequence[Loaded], networks: Sequence[Network] = ()
) -> list[PlannedCell]:
    """Plan all cells, each with a reason where the features do not allow it.

    Cells over the whole network need a network and images; a cell without them has a key too, so
    that results from elsewhere are found.

    Raises
    ------
    DataError
        If the 5-way tasks of the paper cannot be drawn.
    """
    planned = []
    for source, table in features:
        network, file = network_of(table, networks), describe_file(source, table)
        for cell in plan.cells_of(source):
            if cell.over_network:
                planned.append(_plan_network_cell(plan, cell, source, table, network))
            else:
                planned.append(_plan_cell(plan, cell, file, table))
    return planned


def plan_stored_cells(
    plan: Plan, files: Sequence[FeatureFile], stored: Container[str]
) -> list[PlannedCell]:
    """Plan the cells of feature files that are not given: they only show what is stored.

    ``stored`` are the keys of all results of the report.
    """
    planned = []
    for file in files:
        for cell in plan.cells_of(file.source):
            protocol = plan.protocol(cell)
            keys = (key for key in _possible_keys(protocol, cell, file) if key in stored)
            needed = f"needs the feature file {file.source.name}"
            reason = NEEDS_IMAGES if cell.over_network else _what_is_missing(cell, file) or needed
            planned.append(PlannedCell(cell, file.source, protocol, next(keys, ""), reason))
    return planned


def _possible_keys(protocol: Protocol, cell: Cell, file: FeatureFile) -> Iterator[str]:
    """Yield the keys that a cell may have: whether features are whitened depends on the file."""
    if cell.over_network:
        if file.network:
            yield _network_key(protocol, file.network, fine_tuning(cell))
        return
    method = cell.method()
    yield _cell_key(protocol, file.source, method, method.preparation)
    if method.preparation == "whitened":
        yield _cell_key(protocol, file.source, method, "l2")


def network_of(table: FeatureTable, networks: Sequence[Network]) -> Network | None:
    """Return the network that made features, if it is among these."""
    return next((network for network in networks if network.made(table)), None)


def dataset_of(checkpoint: Encoder, features: Sequence[Loaded]) -> str:
    """Return the data set of the features that a network made; empty if it is unknown.

    A network may have made features of its own data set and of a shifted one. The first counts.

    Raises
    ------
    DataError
        If all features record other weights.
    """
    made = [
        source.dataset or table.provenance.get("dataset", "")
        for source, table in features
        if table.provenance.get("weights_sha256", checkpoint.digest) == checkpoint.digest
    ]
    if not made:
        raise _not_made("weights")
    return next((name for name in made if name != SHIFTED), made[0])


def check_networks(features: Sequence[Loaded], networks: Sequence[Network]) -> None:
    """Raise if a network made none of the features."""
    for network in networks:
        if features and not any(network.made(table) for _, table in features):
            raise _not_made("images, or of images of another size")


def _not_made(what: str) -> DataError:
    return DataError(
        "features must be those of the network in checkpoint and of the images in root; got "
        f"features of other {what}. Without features, they are extracted from the images."
    )


def check_images(plan: Plan, network: Network, root: Path) -> None:
    """Raise, before anything is extracted, if 5-way tasks cannot be drawn from the images."""
    for experiment in plan.experiments:
        for cell in plan.cells(experiment):
            if cell.ways == 5:
                check_split(root, network.split, plan.protocol(cell).spec)


def check_split(root: Path, split: ImageSplit, spec: TaskSpec) -> None:
    """Raise if tasks of the paper cannot be drawn from the images of a split."""
    where = f"{root}, split '{split.name}'"
    _check_samples(where, "images", torch.tensor(split.labels), split.class_names, spec)


def _plan_network_cell(
    plan: Plan, cell: Cell, source: Source, table: FeatureTable, network: Network | None
) -> PlannedCell:
    protocol = plan.protocol(cell)
    setting = fine_tuning(cell)
    known = network_identity(table.provenance if network is None else network.about)
    key, reason = _network_key(protocol, known, setting) if known else "", ""
    if network is None:
        reason = NEEDS_IMAGES
    elif not network.can_run(setting):
        reason = "the checkpoint has no base classifier"
    return PlannedCell(cell, source, protocol, key, reason)


def _plan_cell(plan: Plan, cell: Cell, file: FeatureFile, table: FeatureTable) -> PlannedCell:
    method, protocol = cell.method(), plan.protocol(cell)
    preparation = choose_preparation(table, method.preparation)
    key = _cell_key(protocol, file.source, method, preparation)
    reason = _what_is_missing(cell, file)
    if not reason:
        labels = table.labels[table.labels >= 0]
        _check_samples(file.source.name, "rows", labels, table.class_names, protocol.spec)
        protocol.validate(table, method)
    return PlannedCell(cell, file.source, protocol, key, reason)


def _what_is_missing(cell: Cell, file: FeatureFile) -> str:
    """Return why a file does not allow a cell; empty if it does, or if that is unknown."""
    if cell.method().preparation == "centred-l2" and file.no_base_mean:
        return file.no_base_mean
    if file.n_classes and cell.ways > max(5, file.n_classes):
        return f"{cell.ways} classes are needed, there are {file.n_classes}"
    return ""


def _check_samples(
    where: str, kind: str, labels: Tensor, class_names: Sequence[str], spec: TaskSpec
) -> None:
    """Raise if tasks of the paper cannot be drawn from rows or images with these labels."""
    classes, counts = labels.unique(return_counts=True)
    if len(classes) < spec.n_way:
        raise DataError(
            f"{where}: the paper's tasks have {spec.n_way} classes; got {len(classes)}."
        )
    fewest = int(counts.argmin())
    needed, label = spec.n_shot + spec.n_query, int(classes[fewest])
    if counts[fewest] < needed:
        name = class_names[label] if label < len(class_names) else str(label)
        raise DataError(
            f"{where}: {spec.n_shot}-shot tasks of the paper need {needed} {kind} of every class; "
            f"'{name}' has {int(counts[fewest])}."
        )


def _cell_key(protocol: Protocol, source: Source, method: Method, preparation: Preparation) -> str:
    """Return the digest of everything the tasks of a cell depend on.

    The number of tasks is not part of it: a result with at least as many is shown, one with fewer
    is replaced. The device is not either: a report may be extended where the GPU of its results is
    not.
    """
    what = (method.name, preparation, method.solver.provenance(), *_code(method.solver))
    return _digest(source.digest, *what, _task(protocol), str(protocol.dtype))


def _network_key(protocol: Protocol, network: Sequence[str], setting: Adaptation) -> str:
    """Return the digest of everything the tasks of a cell over the whole network depend on.

    As with :func:`_cell_key`, neither the number of tasks nor the device is part of it. More tasks
    continue a result.
    """
    how = [type(setting).__name__, dataclasses.asdict(setting)]
    return _digest("whole network", list(network), how, _task(protocol))


def system_key(protocol: Protocol, source: Source, form: str) -> str:
    """Return the digest of everything the tasks of a trained system depend on.

    As with :func:`_network_key`, more tasks continue a result, on any device.
    """
    return _digest("system", source.digest, form, _task(protocol))


def _task(protocol: Protocol) -> list[Any]:
    spec = protocol.spec
    return [spec.n_way, spec.n_shot, spec.n_query, spec.seed, str(spec.regime)]


def _digest(*what: Any) -> str:  # noqa: ANN401 - any plain value
    text = json.dumps(what, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _code(solver: Solver[Any]) -> tuple[str, ...]:
    """Return the digest of the file that defines a solver from outside this package.

    Users change their solvers between two runs, and a new version must not get the results of the
    old one. A solver without a file, such as one typed into an interpreter, is always new.
    """
    if type(solver).__module__.startswith("infoshot."):
        return ()
    try:
        return (digest(inspect.getfile(type(solver))),)
    except (OSError, TypeError):
        return (uuid.uuid4().hex,)
