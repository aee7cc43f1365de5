"""``reproduce``: every table and figure of the TIM paper on any features, as a report."""

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.backbones import open_checkpoint
from infoshot.backbones.encoders import is_weight_file
from infoshot.benchmark.cell import check_task_count
from infoshot.benchmark.variants import resolve_variants
from infoshot.core import checks
from infoshot.core.atomic import make_folder, sole_writer
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.outputs import check_outputs
from infoshot.core.progress import Progress, ProgressLike, open_progress
from infoshot.core.types import ResultRow
from infoshot.features import default_features_path, digest
from infoshot.reproduction.coverage import Coverage, cover
from infoshot.reproduction.family_findings import check_families
from infoshot.reproduction.findings import Finding, check_findings
from infoshot.reproduction.measurements import add_convergence, add_run_times, run_cells
from infoshot.reproduction.network_groups import Results
from infoshot.reproduction.paper import (
    BACKBONES,
    DATASETS,
    EXPERIMENTS,
    PAPER_METHODS,
    published_rows,
)
from infoshot.reproduction.report_cells import (
    Plan,
    PlannedCell,
    check_images,
    check_networks,
    dataset_of,
    network_of,
    plan_cells,
    plan_stored_cells,
)
from infoshot.reproduction.report_files import Report
from infoshot.reproduction.report_sources import (
    FeatureFile,
    Loaded,
    describe_file,
    read_sources,
)
from infoshot.reproduction.report_store import Store, stored_files
from infoshot.reproduction.reported_runs import plan_systems
from infoshot.reproduction.system_scores import NO_TRIALS, Trials
from infoshot.reproduction.system_trials import SystemLike, Trial, find_trials, open_systems
from infoshot.reproduction.whole_network import Network, open_network
from infoshot.solvers import Method, Solver

PathLike = str | os.PathLike[str]
MethodLike = str | Method | Solver[Any]
_GRADIENT_TASKS_ON_CPU = 300


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The result of :func:`reproduce`.

    Attributes
    ----------
    folder
        Folder with ``report.html``, ``tables.md``, ``tables.tex``, ``results.json``,
        ``accuracies.safetensors`` and the figures.
    rows
        One row per computed cell, in the order of the tables. A cell that two tables share occurs
        once.
    accuracies
        For each row the accuracies of its tasks, between 0 and 1, shape ``(task,)``. Task i is the
        same for all methods, so that differences can be paired.
    findings
        The statements of the paper, each with the verdict on each data set and backbone.
    coverage
        Every number of the paper's Tables 1 to 4, with what became of it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = reproduce(folder, only="table1", tasks=2, gradient_tasks=1)
    >>> result.report.name, len(result.rows) == len(result.accuracies)
    ('report.html', True)
    """

    folder: Path
    rows: tuple[ResultRow, ...]
    accuracies: tuple[Tensor, ...]
    findings: tuple[Finding, ...]
    coverage: Coverage

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder / "report.html"

    def __repr__(self) -> str:
        verdicts = [finding.verdict for finding in self.findings]
        counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
        return f"Reproduction({str(self.report)!r}, {len(self.rows)} rows; findings: {counts})"


def reproduce(
    out: PathLike,
    *,
    features: PathLike | Sequence[PathLike] | None = None,
    dataset: str | Sequence[str] | None = None,
    backbone: str | Sequence[str] | None = None,
    only: str | Sequence[str] | None = None,
    methods: MethodLike | Sequence[MethodLike] = (),
    tasks: int = 10_000,
    gradient_tasks: int | None = None,
    checkpoint: PathLike | Sequence[PathLike] | None = None,
    root: PathLike | Sequence[PathLike] | None = None,
    systems: SystemLike | Sequence[SystemLike] | None = None,
    base_root: PathLike | None = None,
    base_dataset: str | None = None,
    network_tasks: int = 300,
    seed: int = 0,
    device: str = "cpu",
    progress: ProgressLike = None,
) -> Reproduction:
    """Compute the tables and the figure of the TIM paper, and write them as a report.

    Results are stored in ``out`` after each cell. Call the function again with the same arguments
    to resume an interrupted run.

    Parameters
    ----------
    out
        Folder of the report.
    features
        One or several feature files. Files of the same data set and backbone are networks trained
        with different seeds: tables show their mean. A report in ``out`` can be extended by more
        files. It shows its stored results of files that are not given, but computes nothing new
        for them. Default: the file that comes with the package, or none if ``out`` holds results of
        other files only. Run times and the figure are measured on the first file given.
    dataset
        Data set of each feature file: ``mini-imagenet``, ``tiered-imagenet``, ``cub``,
        ``mini-to-cub`` (CUB with a network trained on mini-ImageNet) or ``folder``. Default: what
        the file records. It selects the published numbers to compare with. Without ``features``,
        it is the data set of the images under ``root``; default: the one that the network was
        trained on.
    backbone
        Network of each feature file, such as ``resnet18``; default: what the file records. With a
        PyTorch file as ``checkpoint``, also the network that its weights belong to.
    only
        Names of experiments: ``table1`` to ``table5``, ``figure1``; default: all.
    methods
        More methods for Tables 1 to 3: names, ``package.module:Name``, ``Method`` or ``Solver``
        objects. Stored results of your own solver are reused until the file that defines it
        changes.
    tasks
        Tasks per number.
    gradient_tasks
        Tasks per number for gradient methods, which are slow; default: 300 on a CPU, else
        ``tasks``.
    checkpoint, root
        One or several networks (the folder of a checkpoint or of a training run, or a PyTorch file
        of weights), and images for each. With them the rows over the whole network run too, each
        network on the features that record its weights and images. If ``features`` is not given,
        features and the mean of the base classes are extracted from these images. More folders of
        images than networks may be given for ``systems``.
    systems
        Systems that train their own network: folders of training runs, or ``TrainedSystem``
        objects. Each is evaluated on the test images under all of ``root`` that are of the data set
        it was trained on, or of CUB for mini-ImageNet, which is the domain shift. One folder of
        images serves all systems. A run serves all numbers of shots; of runs of one system with
        different numbers of training shots, each serves those it was trained for. Stored results
        are shown without systems and images.
    base_root
        The images that the network was trained on, if they are not under ``root``; for a single
        network.
    base_dataset
        The data set that the network was trained on; default: what the checkpoint records. For a
        single network.
    network_tasks
        Tasks per number over the whole network, which take about a minute each on a CPU, and of
        systems that read images. Systems that read feature maps run as many, but at least 1,000 if
        ``tasks`` allows it; those that read vectors run ``tasks``. They are stored every hundred
        tasks. A stored number of fewer tasks is continued, one of more is kept, so
        calls into the same folder may have different networks and numbers of tasks.
    seed
        Task i depends on the seed and on i only.
    device
        Where to compute, such as ``cpu`` or ``cuda``.
    progress
        See :mod:`infoshot.core.progress`.

    Returns
    -------
    The folder, the rows, the accuracies of all tasks, and the findings of the paper with verdicts.

    Raises
    ------
    InvalidArgumentError
        If an argument has a value that is not allowed.
    DataError
        If a file cannot be read, the tasks cannot be drawn from it, or ``out`` holds results of
        another file that has the same network, or may have it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = reproduce(folder, only="table1", methods="paddle", tasks=2, gradient_tasks=1)
    >>> [row.method for row in result.rows if row.shots == 5][-2:]
    ['tim-auto', 'paddle']
    """
    checks.device(device)
    if gradient_tasks is None:
        gradient_tasks = _GRADIENT_TASKS_ON_CPU if device == "cpu" else tasks
    check_task_count("tasks", tasks)
    check_task_count("gradient_tasks", gradient_tasks)
    check_task_count("network_tasks", network_tasks)
    plan = Plan(
        experiments=_experiments(_as_list(only)),
        methods=_extra_methods(_as_list(methods)),
        n_tasks=tasks,
        n_gradient_tasks=gradient_tasks,
        n_network_tasks=network_tasks,
        seed=seed,
        device=device,
    )
    paths = [Path(path) for path in _as_list(features)]
    names = (_as_list(dataset), _as_list(backbone))
    named = [] if systems is None else open_systems(_as_list(systems))
    roots = [Path(path) for path in _as_list(root)]
    pairs = _network_pairs(
        _as_list(checkpoint),
        roots,
        has_systems=bool(named),
        base_root=base_root,
        base_dataset=base_dataset,
    )
    folder = Path(out)
    if not paths and not pairs:
        paths = _default_features(folder)
    _check_names(len(paths) or len(pairs), *names)
    given = read_sources(paths, *names)
    _check_different(_describe(given))
    networks = _open_networks(pairs, (base_root, base_dataset), given, names, device)
    for network, (_, of_network) in zip(networks, pairs, strict=True):
        check_images(plan, network, of_network)
    check_networks(given, networks)
    planned = plan_cells(plan, given, networks)
    trials = find_trials(plan, named, roots, folder) if named else []
    make_folder(folder)
    check_outputs(paths, [folder / "results.json"])
    with open_progress(progress) as bar, sole_writer(folder):
        if networks and not given:
            extracted = [network.extract(folder, bar) for network in networks]
            given = read_sources(extracted, (), names[1])
            planned = plan_cells(plan, given, networks)
        store = Store(folder, _describe(given), [trial.run for trial in trials])
        return _compute(plan, planned, given, networks, trials, store, bar)


def _compute(
    plan: Plan,
    planned: Sequence[PlannedCell],
    features: Sequence[Loaded],
    networks: Sequence[Network],
    trials: Sequence[Trial],
    store: Store,
    bar: Progress,
) -> Reproduction:
    """Compute what the folder does not have yet, and write the report."""
    store.read()
    missing = [file for file in store.files if not store.is_given(file.source)]
    planned = [*planned, *plan_stored_cells(plan, missing, store.rows)]
    at_hand = Trials(trials, store.folder / "cache") if trials else NO_TRIALS
    if store.systems:
        planned = [*planned, *plan_systems(plan, store.systems, at_hand)]
    run_cells(planned, features, store, networks=networks, trials=at_hand, progress=bar)
    if features:
        table = features[0][1]
        network = network_of(table, networks)
        if "table5" in plan.experiments:
            add_run_times(plan, store, table, network, bar)
        if "figure1" in plan.experiments:
            add_convergence(plan, store, table, network, bar)
    store.write()  # names and files may be new, even if no number is
    results = Results(planned, store)
    families = check_families(results) if results.systems else ()
    findings = (*check_findings(results, store.extra.get("run_times", [])), *families)
    coverage = cover(results, plan.experiments)
    Report(plan, store, results, findings, coverage).write()
    keys = dict.fromkeys(item.key for item in planned if item.key in store.rows)
    return Reproduction(
        store.folder,
        rows=tuple(store.rows[key] for key in keys),
        accuracies=tuple(store.accuracies[key] for key in keys),
        findings=findings,
        coverage=coverage,
    )


def _as_list(value: Any) -> list[Any]:  # noqa: ANN401 - one thing or several
    """Return the items of an argument that may be one thing or several."""
    if value is None:
        return []
    is_several = isinstance(value, Iterable) and not isinstance(value, (str, os.PathLike))
    return list(value) if is_several else [value]


def _experiments(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in EXPERIMENTS:
            raise InvalidArgumentError(checks.unknown_name("experiment", name, EXPERIMENTS))
    return list(dict.fromkeys(names)) or list(EXPERIMENTS)


def _extra_methods(specs: Sequence[MethodLike]) -> list[Method]:
    """Resolve methods that are added to the tables; each needs a name of its own there."""
    methods = resolve_variants(specs) if specs else []
    printed = {row.method for row in published_rows()}
    names = [*({*PAPER_METHODS} | printed), *(method.name for method in methods)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(
                f"methods must have different names, also from those of the paper; got '{name}' "
                "twice."
            )
    return methods


def _check_names(n_files: int, datasets: Sequence[str], backbones: Sequence[str]) -> None:
    for argument, names, known in (
        ("dataset", datasets, DATASETS),
        ("backbone", backbones, BACKBONES),
    ):
        if names and len(names) != n_files:
            raise InvalidArgumentError(
                f"{argument} must have one name for each feature file; got {len(names)} for "
                f"{n_files}."
            )
        for name in names:
            if name not in known:
                raise InvalidArgumentError(checks.unknown_name(argument, name, known))


def _default_features(folder: Path) -> list[Path]:
    """Return the embedded file; none if a report has results of other files only."""
    path, stored = default_features_path(), stored_files(folder)
    is_used = not stored or digest(path) in {file.source.digest for file in stored}
    return [path] if is_used else []


def _describe(given: Sequence[Loaded]) -> list[FeatureFile]:
    return [describe_file(source, table) for source, table in given]


def _check_different(files: Sequence[FeatureFile]) -> None:
    """Raise if a network is given twice: it would count as two."""
    for first, second in itertools.combinations(files, 2):
        names = f"'{first.source.name}' and '{second.source.name}'"
        if first.source.digest == second.source.digest:
            raise InvalidArgumentError(
                f"features must be different files; got {names} with the same content."
            )
        if first.source.group == second.source.group and first.has_network_of(second):
            raise InvalidArgumentError(
                f"features must be of different networks; got {names} with the same weights and "
                "images."
            )


def _network_pairs(
    checkpoints: Sequence[PathLike],
    roots: Sequence[Path],
    *,
    has_systems: bool = False,
    **of_one: object,
) -> list[tuple[Path, Path]]:
    """Return every network with its images; arguments ``of_one`` need exactly one network."""
    for name, value in {"root": None if has_systems else roots or None, **of_one}.items():
        if value is not None and not checkpoints:
            needed = "checkpoint=DIR or systems=DIR" if name == "root" else "checkpoint=DIR"
            raise InvalidArgumentError(f"{name} must be given together with {needed}.")
    for name, value in of_one.items():
        if value is not None and len(checkpoints) > 1:
            raise InvalidArgumentError(
                f"{name} must be given with a single checkpoint; got {len(checkpoints)}."
            )
    if checkpoints and not roots:
        raise InvalidArgumentError("checkpoint must be given together with root=DIR.")
    if len(checkpoints) > len(roots) or (len(checkpoints) < len(roots) and not has_systems):
        raise InvalidArgumentError(
            f"checkpoint and root must be given in pairs; got {len(checkpoints)} and {len(roots)}."
        )
    return [(Path(path), root) for path, root in zip(checkpoints, roots, strict=False)]


def _open_networks(
    pairs: Sequence[tuple[Path, Path]],
    base: tuple[PathLike | None, str | None],
    features: Sequence[Loaded],
    names: tuple[Sequence[str], Sequence[str]],
    device: str,
) -> list[Network]:
    """Open networks with images of the data set of their features."""
    networks, (base_root, base_dataset) = [], base
    for number, (path, root) in enumerate(pairs):
        dataset, backbone = (dict(enumerate(given)).get(number, "") for given in names)
        encoder = open_checkpoint(path, backbone if backbone and is_weight_file(path) else None)
        networks.append(
            open_network(
                encoder,
                root,
                dataset=dataset_of(encoder, features) if features else dataset,
                base_root=None if base_root is None else Path(base_root),
                base_dataset=base_dataset,
                device=device,
            )
        )
    return networks
