"""Results of a report with accuracies that a test chooses."""

import torch

from infoshot.benchmark import Protocol
from infoshot.core.types import ResultRow
from infoshot.metrics import mean_interval
from infoshot.reproduction.network_groups import Results
from infoshot.reproduction.paper import ACCURACY_TABLES, SHIFTED, system_cells
from infoshot.reproduction.paper_systems import SystemForm, recipe_of_run
from infoshot.reproduction.report_cells import Plan, PlannedCell
from infoshot.reproduction.report_sources import FeatureFile, Source
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.reported_runs import SystemRun, serves
from infoshot.tasks import TaskSpec


def source(dataset, backbone="resnet18", number=0, recipe="", images="images"):
    """Return a feature file that does not exist."""
    name = "-".join(filter(None, (dataset, backbone, recipe, str(number))))
    return Source(f"{name}.safetensors", name, dataset, backbone, recipe, images)


def system_run(system, dataset, backbone="resnet12", shots=0, number=0, *, adds_queries=False):
    """Return the run of a trained system that does not exist."""
    recipe = recipe_of_run(system)
    one = source(dataset, backbone, f"{shots}{number}", recipe)
    forms = (SystemForm(system, "vectors", transductive=False),)
    if adds_queries:
        forms += (SystemForm(f"{system}+t", "vectors", transductive=True),)
    return SystemRun(one, system, one.digest, shots, 20, 0, forms)


def make_results(folder, chosen, experiments=ACCURACY_TABLES):
    """Return results of all cells of feature files and runs of systems.

    ``chosen`` has a function for each: of a cell, it returns the accuracies of the tasks in
    percent, or a reason why the cell did not run.
    """
    runs = [one for one in chosen if isinstance(one, SystemRun)]
    files = [FeatureFile(one) for one in chosen if one not in runs]
    store, planned = Store(folder, files, runs), []
    for one, choose in chosen.items():
        origin = one.source if isinstance(one, SystemRun) else one
        for experiment in experiments:
            if (experiment == "table2") != (origin.dataset == SHIFTED):
                continue
            for cell in _cells(one, experiment):
                if one not in runs or serves(one, cell.shots, runs):
                    planned.append(_plan(cell, origin, choose(cell), store))
    return Results(planned, store)


def _cells(one, experiment):
    if isinstance(one, SystemRun):
        return system_cells(experiment, one.forms)
    return Plan(experiments=[experiment]).cells(experiment, one)


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
