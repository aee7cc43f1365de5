"""Results of a report with accuracies that a test chooses."""

import torch

from infoshot.benchmark import Protocol
from infoshot.core.types import ResultRow
from infoshot.metrics import mean_interval
from infoshot.reproduction.network_groups import Results
from infoshot.reproduction.paper import ACCURACY_TABLES, SHIFTED, cells
from infoshot.reproduction.report_cells import PlannedCell, Source
from infoshot.reproduction.report_store import Store
from infoshot.tasks import TaskSpec


def source(dataset, backbone="resnet18", number=0):
    """Return a feature file that does not exist."""
    name = f"{dataset}-{backbone}-{number}"
    return Source(f"{name}.safetensors", name, dataset, backbone)


def make_results(folder, chosen, experiments=ACCURACY_TABLES):
    """Return results of all cells of some sources.

    ``chosen`` has a function for each source: of a cell, it returns the accuracies of the tasks in
    percent, or a reason why the cell did not run.
    """
    store, planned = Store(folder, list(chosen)), []
    for one, choose in chosen.items():
        for experiment in experiments:
            if (experiment == "table2") == (one.dataset == SHIFTED):
                planned += [_plan(cell, one, choose(cell), store) for cell in cells(experiment)]
    return Results(planned, store)


def _plan(cell, one, accuracies, store):
    spec = TaskSpec(n_way=cell.ways, n_shot=cell.shots)
    if isinstance(accuracies, str):
        return PlannedCell(cell, one, Protocol(spec=spec), "", accuracies)
    tasks = torch.as_tensor(accuracies, dtype=torch.float64) / 100
    mean, half_width = mean_interval(tasks)
    key = "/".join(map(str, (one.digest, cell.experiment, *cell.setting)))
    store.accuracies[key] = tasks
    store.rows[key] = ResultRow(
        method=cell.run.name, ways=cell.ways, shots=cell.shots, queries=15, tasks=len(tasks),
        seed=0, regime="balanced", mean=100 * mean, ci95=100 * half_width, seconds=1.0,
        per_task_ms=1.0, device="cpu", dtype="float32", features=one.name,
        features_digest=one.digest, settings={}, environment={},
    )  # fmt: skip
    return PlannedCell(cell, one, Protocol(spec=spec, n_tasks=len(tasks)), key)
