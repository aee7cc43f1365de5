"""Honest run-times: a task alone, as the paper measured, and in a batch.

Tasks are drawn before and scored never; a first solve warms up; a GPU is waited for. One core on a
CPU. Of several repetitions the median counts.
"""

import statistics
import time
from typing import Any

import torch

from infoshot.core.types import FeatureTable, TaskBatch
from infoshot.features import prepare
from infoshot.reproduction.experiments import cells
from infoshot.reproduction.finetune import FineTuning
from infoshot.reproduction.whole_network import Network
from infoshot.solvers import METHODS, solve
from infoshot.tasks import TaskSpec, sample_tasks

NETWORK_RUN = "ent-min over the whole network"
TIMED = {"SimpleShot": "simpleshot", "TIM-ADM": "tim-adm", "TIM-GD": "tim-gd"}
_ALONE, _ROUNDS = 9, 3
_BATCH = {"cpu": 64, "cuda": 1000}


def run_times(table: FeatureTable, device: str) -> list[dict[str, Any]]:
    """Seconds per 5-way 5-shot task of every timed method, alone and in a batch."""
    n_batch = _BATCH["cuda" if device.startswith("cuda") else "cpu"]
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        entries = []
        for paper_name, name in TIMED.items():
            method = METHODS[name]
            if method.preparation == "centred-l2" and table.base_mean is None:
                continue
            z = prepare(table, method.preparation).to(device)
            unit = FeatureTable(z, table.labels.to(device))
            tasks, _ = sample_tasks(unit, TaskSpec(n_shot=5), n_batch)
            alone = [_seconds(name, tasks[i : i + 1]) for i in range(_ALONE + 1)][1:]
            batched = [_seconds(name, tasks) for _ in range(_ROUNDS + 1)][1:]
            entries.append(
                {
                    "method": paper_name,
                    "run": name,
                    "device": device,
                    "alone_s": statistics.median(alone),
                    "batched_s": statistics.median(batched) / n_batch,
                    "batch": n_batch,
                }
            )
    finally:
        torch.set_num_threads(n_threads)
    return entries


def network_run_time(network: Network, device: str, n_tasks: int) -> dict[str, Any]:
    """Seconds per task of entropy minimisation over the whole network, all cores on a CPU.

    The median of ``n_tasks`` or fewer.
    """
    cell = next(cell for cell in cells("table4") if cell.run == "ent-min")
    seconds = network.seconds_alone(FineTuning(**cell.settings), min(_ALONE, n_tasks), device)
    return {
        "method": f"{cell.paper_method} {{{cell.parameters}}}",
        "run": NETWORK_RUN,
        "device": device,
        "alone_s": statistics.median(seconds),
        "batched_s": None,
        "batch": 1,
    }


def _seconds(name: str, tasks: TaskBatch) -> float:
    """Time of one solve, the device waited for before and after."""
    _wait(tasks)
    start = time.perf_counter()
    solve(METHODS[name].solver, tasks, n_threads=1, validate=False)
    _wait(tasks)
    return time.perf_counter() - start


def _wait(tasks: TaskBatch) -> None:
    if tasks.z_sup.device.type == "cuda":
        torch.cuda.synchronize(tasks.z_sup.device)
