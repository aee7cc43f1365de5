"""tim-auto on the validation classes: fixed balance weights, its own weight, and temperatures.

python scripts/tim_auto_validation.py      writes results/tim_auto_validation.json in a few minutes
"""

import dataclasses
import json
from pathlib import Path

import torch
from torch import Tensor

from infoshot import FeatureTable, TaskBatch, TimAdm, TimAuto, solve
from infoshot.core.environment import environment
from infoshot.features import digest, prepare, read_features
from infoshot.metrics import accuracy, negative_log_likelihood
from infoshot.solvers import METHODS
from infoshot.solvers.baselines.prototype import shrink
from infoshot.solvers.objective import class_counts
from infoshot.tasks import TaskSpec, sample_tasks
from infoshot.tasks.regimes import parse_regime

RESULTS = Path(__file__).parents[1] / "results"
FEATURES = RESULTS / "training/resnet18/mini_val_resnet18.safetensors"
WEIGHTS = (0.0, 0.02, 0.05, 0.08, 0.12, 0.2, 0.5)
CELLS = [
    (n_query, regime, n_shot)
    for n_query in (3, 6, 15)
    for regime in ("balanced", "dirichlet:2", "effective:2", "effective:1")
    for n_shot in (1, 5)
]


@torch.inference_mode()
def _solve_with_weight(tasks: TaskBatch, weight: float) -> Tensor:
    """TIM-ADM from shrunken prototypes with the same balance weight for all tasks."""
    solver = TimAdm(temperature=25.0, marginal_entropy_weight=weight)
    state = solver.init(tasks)
    n_shots = class_counts(tasks.y_sup, tasks.n_way).to(state.weights.dtype)
    state.weights = shrink(state.weights, n_shots, 5.0)
    for _ in range(60):
        state = solver.step(tasks, state)
    return solver.log_posterior(tasks, state)


def _score_cell(
    table: FeatureTable, n_query: int, regime: str, n_shot: int, n_tasks: int = 600
) -> dict[str, float]:
    """Accuracies on one kind of task, and likelihoods at several temperatures."""
    spec = TaskSpec(n_query=n_query, n_shot=n_shot, regime=parse_regime(regime), seed=1)
    methods = {name: METHODS[name].solver for name in ("prototype", "tim-adm", "tim-auto")}
    scores: dict[str, list[Tensor]] = {}
    for start in range(0, n_tasks, 100):
        tasks, labels = sample_tasks(table, spec, 100, start=start)
        answers = {name: solve(solver, tasks).probabilities for name, solver in methods.items()}
        answers |= {f"weight {weight}": _solve_with_weight(tasks, weight) for weight in WEIGHTS}
        for name, p in answers.items():
            scores.setdefault(name, []).append(accuracy(p, labels))
        for temperature in (7.0, 10.5, 15.0, 35.0):
            p = solve(TimAuto(temperature=temperature), tasks).probabilities
            scores.setdefault(f"nll at {temperature}", []).append(
                negative_log_likelihood(p, labels) / 100
            )
    return {name: round(100 * float(torch.cat(parts).mean()), 3) for name, parts in scores.items()}


def main() -> None:
    """Run all cells and write the file."""
    table = read_features(FEATURES)
    unit = dataclasses.replace(table, features=prepare(table, "l2"))
    rows = [
        {"queries": 5 * n_query, "regime": regime, "shots": n_shot}
        | _score_cell(FeatureTable(unit.features, unit.labels), n_query, regime, n_shot)
        for n_query, regime, n_shot in CELLS
    ]
    about = {"tasks": 600, "seed": 1, "features_digest": digest(FEATURES)}
    document = {**about, "environment": environment(), "rows": rows}
    text = json.dumps(document, indent=1) + "\n"
    (RESULTS / "tim_auto_validation.json").write_text(text)


if __name__ == "__main__":
    main()
