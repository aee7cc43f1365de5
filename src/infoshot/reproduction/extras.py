"""Run-times and convergence of a report, measured once and kept with the other results."""

import dataclasses
from typing import Any

from infoshot.benchmark.convergence import convergence_curve
from infoshot.core.types import FeatureTable
from infoshot.reproduction.plan import Plan
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.run_times import NETWORK_RUN, network_run_time, run_times
from infoshot.reproduction.whole_network import Network
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec

_CURVES, _CURVE_TASKS, _NETWORK_CURVE_TASKS = ("tim-adm", "tim-gd"), 128, 24


def add_run_times(plan: Plan, store: Store, table: FeatureTable, network: Network | None) -> None:
    """Measure how long a task takes on this device, unless that is there already."""
    device = plan.device
    times: list[dict[str, Any]] = store.extra.setdefault("run_times", [])
    known = {entry["run"] for entry in times if entry["device"] == device}
    if not known:
        times += run_times(table, device)
    if network is not None and NETWORK_RUN not in known:
        times.append(network_run_time(network, device, plan.n_network_tasks))
    store.write()


def add_convergence(plan: Plan, store: Store, table: FeatureTable, network: Network | None) -> None:
    """Solve some tasks step by step, unless that is there already."""
    if "figure1" not in store.extra:
        _add_curves(store, table, plan.device)
    n_tasks = min(_NETWORK_CURVE_TASKS, max(2, plan.n_network_tasks))  # two make a band
    known = store.extra.get("figure1_network", [])
    if network is not None and not any(curve["n_tasks"] >= n_tasks for curve in known):
        curve = network.curve(n_tasks, plan.device)
        store.extra["figure1_network"] = [dataclasses.asdict(curve.summary())]
        store.write()


def _add_curves(store: Store, table: FeatureTable, device: str) -> None:
    moved = dataclasses.replace(
        table, features=table.features.to(device), labels=table.labels.to(device)
    )
    store.extra["figure1"] = [
        dataclasses.asdict(
            convergence_curve(moved, METHODS[name], TaskSpec(), n_tasks=_CURVE_TASKS).summary()
        )
        for name in _CURVES
    ]
    store.write()
