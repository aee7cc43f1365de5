"""Computes what a report is missing: accuracies of cells, run times and convergence curves.

Run times are those of solving alone: tasks are drawn before, nothing is scored, a first solve warms
up, and a GPU is synchronised before the clock is read. On a CPU the solvers over the class weights
use one core. The median of several repetitions counts.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from infoshot.benchmark import score_cell
from infoshot.benchmark.convergence import convergence_curve
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.features import prepare
from infoshot.reproduction.adaptation import Adaptation
from infoshot.reproduction.ent_min import EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.reproduction.paper import ENT_MIN, EXPERIMENTS, WHOLE_NETWORK, has_published
from infoshot.reproduction.paper_systems import SystemForm
from infoshot.reproduction.report_cells import Plan, PlannedCell, network_of
from infoshot.reproduction.report_sources import Loaded
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.score_parts import Scores
from infoshot.reproduction.system_scores import NO_TRIALS, Trials
from infoshot.reproduction.whole_network import Network
from infoshot.solvers import METHODS, solve
from infoshot.tasks import TaskSpec, sample_tasks

_TIMED = {"SimpleShot": "simpleshot", "TIM-ADM": "tim-adm", "TIM-GD": "tim-gd"}
_TIMED_OVER_NETWORK: Mapping[str, Callable[[], Adaptation]] = {
    "TIM-GD": FineTuning,
    ENT_MIN[0]: EntMin,
}
_SINGLE_TASKS, _ROUNDS = 9, 3
_BATCH = {"cpu": 64, "cuda": 1000}
_CURVES = ("tim-adm", "tim-gd")
_CURVE_TASKS, _NETWORK_CURVE_TASKS = {"cpu": 64, "cuda": 200}, {"cpu": 24, "cuda": 200}


def run_cells(
    planned: Sequence[PlannedCell],
    features: Sequence[Loaded],
    store: Store,
    *,
    networks: Sequence[Network] = (),
    trials: Trials = NO_TRIALS,
    progress: Progress = SILENT,
) -> None:
    """Run the cells that are not in the store; each result is stored as soon as it is computed.

    Numbers that the paper has run first, also those of systems: a run that is ended early has them.
    A cell over the whole network, or of a trained system, that is stored with fewer tasks than
    planned is continued.
    """
    tables = {source.digest: table for source, table in features}
    missing: dict[str, PlannedCell] = {}  # tables share some cells
    for item in sorted(planned, key=_is_unpublished):
        if not item.not_run and not _is_stored(item, store):
            missing.setdefault(item.key, item)
    for number, item in enumerate(missing.values(), start=1):
        digest, is_system = item.source.digest, isinstance(item.cell.run, SystemForm)
        if is_system:
            trials.prepare(digest, progress)
        name = f"{_describe(item)} ({number} of {len(missing)})"
        progress.start(name, item.protocol.n_tasks, "tasks")
        if is_system:
            _run_in_parts(item, partial(trials.score, digest), store, progress)
        elif item.cell.over_network:
            network = network_of(tables[digest], networks)
            assert network is not None
            _run_in_parts(item, network.score, store, progress)
        else:
            row, accuracies = score_cell(
                tables[digest],
                item.cell.method(),
                item.protocol,
                features_name=item.source.name,
                features_digest=digest,
                on_progress=progress.advance,
            )
            store.add(item.key, row, accuracies)


def _is_unpublished(item: PlannedCell) -> bool:
    return not has_published(item.cell.experiment, item.source.dataset)


def _is_stored(item: PlannedCell, store: Store) -> bool:
    row = store.rows.get(item.key)
    return row is not None and row.tasks >= item.protocol.n_tasks


def _run_in_parts(
    item: PlannedCell, score: Callable[..., Iterator[Scores]], store: Store, progress: Progress
) -> None:
    """Run a cell that takes long; after every part the result so far is stored."""
    row = store.rows.get(item.key)
    earlier = None if row is None else (row, store.accuracies[item.key])
    for scores in score(item.cell, item.protocol, earlier=earlier, progress=progress):
        store.add(item.key, *scores)


def _describe(item: PlannedCell) -> str:
    cell = item.cell
    parts = (cell.experiment, cell.name, cell.parameters, cell.loss)
    return " ".join([*filter(None, parts), f"{cell.ways}-way {cell.shots}-shot"])


def add_run_times(
    plan: Plan,
    store: Store,
    table: FeatureTable,
    network: Network | None,
    progress: Progress = SILENT,
) -> None:
    """Measure the time per task on this device, unless the store has it."""
    progress.start(EXPERIMENTS["table5"])
    device = plan.device
    times: list[dict[str, Any]] = store.extra.setdefault("run_times", [])
    over_network = {_network_run(name): name for name in _TIMED_OVER_NETWORK}
    # Earlier versions timed another computation under the name of entropy minimisation.
    times[:] = [entry for entry in times if entry["run"] in {*_TIMED.values(), *over_network}]
    known = {entry["run"] for entry in times if entry["device"] == device}
    if not known & {*_TIMED.values()}:
        times += _measure_run_times(table, device)
    for run, name in over_network.items():
        setting = _TIMED_OVER_NETWORK[name]()
        if network is not None and run not in known and network.can_run(setting):
            times.append(_measure_network_run_time(network, name, setting, plan))
    store.write()


def add_convergence(
    plan: Plan,
    store: Store,
    table: FeatureTable,
    network: Network | None,
    progress: Progress = SILENT,
) -> None:
    """Record accuracy and mutual information step by step, unless the store has them.

    All curves of a figure come from one kind of device. Those of a GPU are not replaced by those
    of a CPU.
    """
    progress.start(EXPERIMENTS["figure1"])
    kind = _kind(plan.device)
    if not _has_curves(store.extra.get("figure1", []), kind, _CURVE_TASKS[kind]):
        moved = dataclasses.replace(
            table, features=table.features.to(plan.device), labels=table.labels.to(plan.device)
        )
        store.extra["figure1"] = [
            dataclasses.asdict(
                convergence_curve(
                    moved, METHODS[name], TaskSpec(), n_tasks=_CURVE_TASKS[kind], alone=True
                ).summary()
            )
            for name in _CURVES
        ]
        store.write()
    n_tasks = min(_NETWORK_CURVE_TASKS[kind], max(2, plan.n_network_tasks))  # for a band two
    known = store.extra.get("figure1_network", [])
    same_device = _kind(store.extra["figure1"][0]["device"]) == kind
    if network is not None and same_device and not _has_curves(known, kind, n_tasks):
        curve = network.curve(n_tasks, plan.device)
        store.extra["figure1_network"] = [dataclasses.asdict(curve.summary())]
        store.write()


def _has_curves(entries: Sequence[Mapping[str, Any]], kind: str, n_tasks: int) -> bool:
    """Whether stored curves need not be measured again.

    Earlier versions did not time tasks alone.
    """
    return bool(entries) and all(
        "milliseconds_alone" in entry
        and entry["n_tasks"] >= n_tasks
        and _kind(entry["device"]) in (kind, "cuda")
        for entry in entries
    )


def _kind(device: str) -> str:
    return "cuda" if device.startswith("cuda") else "cpu"


def _measure_run_times(table: FeatureTable, device: str) -> list[dict[str, Any]]:
    """Return seconds per 5-way 5-shot task of every timed method, single and in a batch."""
    n_batch = _BATCH[_kind(device)]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        entries = []
        for paper_name, name in _TIMED.items():
            method = METHODS[name]
            if method.preparation == "centred-l2" and table.base_mean is None:
                continue
            z = prepare(table, method.preparation).to(device)
            unit = FeatureTable(z, table.labels.to(device))
            tasks, _ = sample_tasks(unit, TaskSpec(n_shot=5), n_batch)
            single = [_seconds(name, tasks[i : i + 1]) for i in range(_SINGLE_TASKS + 1)][1:]
            batched = [_seconds(name, tasks) for _ in range(_ROUNDS + 1)][1:]
            entries.append(
                {
                    "method": paper_name,
                    "run": name,
                    "device": device,
                    "alone_s": statistics.median(single),
                    "batched_s": statistics.median(batched) / n_batch,
                    "batch": n_batch,
                }
            )
    finally:
        torch.set_num_threads(n_threads)
    return entries


def _network_run(name: str) -> str:
    return f"{name} over the whole network"


def _measure_network_run_time(
    network: Network, name: str, setting: Adaptation, plan: Plan
) -> dict[str, Any]:
    """Return seconds per task of a method over the whole network, on all cores."""
    n_tasks = min(_SINGLE_TASKS, plan.n_network_tasks)
    seconds = network.seconds_per_task(setting, n_tasks, plan.device)
    return {
        "method": f"{name} {{{WHOLE_NETWORK}}}",
        "run": _network_run(name),
        "device": plan.device,
        "alone_s": statistics.median(seconds),
        "batched_s": None,
        "batch": 1,
    }


def _seconds(name: str, tasks: TaskBatch) -> float:
    """Time one solve."""
    _synchronise(tasks)
    start = time.perf_counter()
    solve(METHODS[name].solver, tasks, n_threads=1, validate=False, quiet=True)
    _synchronise(tasks)
    return time.perf_counter() - start


def _synchronise(tasks: TaskBatch) -> None:
    if tasks.z_sup.device.type == "cuda":
        torch.cuda.synchronize(tasks.z_sup.device)
