"""Computes what a report is missing: accuracies of cells, run times and convergence curves.

Run times are those of solving alone: tasks are drawn before, nothing is scored, a first solve warms
up, and a GPU is synchronised before the clock is read. On a CPU the solvers over the class weights
use one core. The median of several repetitions counts.
"""

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch

from infoshot.benchmark import score_cell
from infoshot.benchmark.convergence import convergence_curve
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.features import prepare
from infoshot.reproduction.paper import EXPERIMENTS, cells
from infoshot.reproduction.report_cells import Loaded, Plan, PlannedCell, Store
from infoshot.reproduction.whole_network import Network, fine_tuning
from infoshot.solvers import METHODS, solve
from infoshot.tasks import TaskSpec, sample_tasks

_TIMED = {"SimpleShot": "simpleshot", "TIM-ADM": "tim-adm", "TIM-GD": "tim-gd"}
_NETWORK_RUN = "ent-min over the whole network"
_SINGLE_TASKS, _ROUNDS = 9, 3
_BATCH = {"cpu": 64, "cuda": 1000}
_CURVES, _CURVE_TASKS, _NETWORK_CURVE_TASKS = ("tim-adm", "tim-gd"), 128, 24


def run_cells(
    planned: Sequence[PlannedCell],
    features: Sequence[Loaded],
    store: Store,
    *,
    network: Network | None = None,
    progress: Progress = SILENT,
) -> None:
    """Run the cells that are not in the store; each result is stored as soon as it is computed."""
    tables = {source.digest: table for source, table in features}
    missing: dict[str, PlannedCell] = {}  # tables share some cells
    for item in planned:
        if not item.not_run and item.key not in store.rows:
            missing.setdefault(item.key, item)
    for number, item in enumerate(missing.values(), start=1):
        name = f"{_describe(item)} ({number} of {len(missing)})"
        progress.start(name, item.protocol.n_tasks, "tasks")
        if item.cell.over_network:
            assert network is not None
            row, accuracies = network.score(item.cell, item.protocol, progress)
        else:
            row, accuracies = score_cell(
                tables[item.source.digest],
                item.cell.method(),
                item.protocol,
                features_name=item.source.name,
                features_digest=item.source.digest,
                on_progress=progress.advance,
            )
        store.add(item.key, row, accuracies)


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
    known = {entry["run"] for entry in times if entry["device"] == device}
    if not known:
        times += _measure_run_times(table, device)
    if network is not None and _NETWORK_RUN not in known:
        times.append(_measure_network_run_time(network, device, plan.n_network_tasks))
    store.write()


def add_convergence(
    plan: Plan,
    store: Store,
    table: FeatureTable,
    network: Network | None,
    progress: Progress = SILENT,
) -> None:
    """Record accuracy and mutual information step by step, unless the store has them."""
    progress.start(EXPERIMENTS["figure1"])
    if "figure1" not in store.extra:
        moved = dataclasses.replace(
            table, features=table.features.to(plan.device), labels=table.labels.to(plan.device)
        )
        store.extra["figure1"] = [
            dataclasses.asdict(
                convergence_curve(moved, METHODS[name], TaskSpec(), n_tasks=_CURVE_TASKS).summary()
            )
            for name in _CURVES
        ]
        store.write()
    n_tasks = min(_NETWORK_CURVE_TASKS, max(2, plan.n_network_tasks))  # a band needs two tasks
    known = store.extra.get("figure1_network", [])
    if network is not None and not any(curve["n_tasks"] >= n_tasks for curve in known):
        curve = network.curve(n_tasks, plan.device)
        store.extra["figure1_network"] = [dataclasses.asdict(curve.summary())]
        store.write()


def _measure_run_times(table: FeatureTable, device: str) -> list[dict[str, Any]]:
    """Return seconds per 5-way 5-shot task of every timed method, single and in a batch."""
    n_batch = _BATCH["cuda" if device.startswith("cuda") else "cpu"]
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


def _measure_network_run_time(network: Network, device: str, n_tasks: int) -> dict[str, Any]:
    """Return seconds per task of entropy minimisation over the whole network, on all cores."""
    cell = next(cell for cell in cells("table4") if cell.run.name == "ent-min")
    n_tasks = min(_SINGLE_TASKS, n_tasks)
    return {
        "method": f"{cell.name} {{{cell.parameters}}}",
        "run": _NETWORK_RUN,
        "device": device,
        "alone_s": statistics.median(network.seconds_per_task(fine_tuning(cell), n_tasks, device)),
        "batched_s": None,
        "batch": 1,
    }


def _seconds(name: str, tasks: TaskBatch) -> float:
    """Time one solve."""
    _synchronise(tasks)
    start = time.perf_counter()
    solve(METHODS[name].solver, tasks, n_threads=1, validate=False)
    _synchronise(tasks)
    return time.perf_counter() - start


def _synchronise(tasks: TaskBatch) -> None:
    if tasks.z_sup.device.type == "cuda":
        torch.cuda.synchronize(tasks.z_sup.device)
