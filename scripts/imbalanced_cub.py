"""Imbalanced tasks of CUB, beside published numbers: results/imbalanced_cub.json.

python scripts/imbalanced_cub.py                     an hour on two CPU cores, mostly alpha-am
python scripts/imbalanced_cub.py --only bavardage    only what is missing of these methods

Test classes of CUB, four ResNet-18 (results/training/cub-resnet18), 5-way tasks with 75 queries
under dirichlet:2, seed 0, the same for all networks. Rerun the command to resume.
scripts/methods.py puts the table into results/methods.md.
"""

import argparse
import json
from pathlib import Path

import torch
from oracles import ORACLE, SORTED, solve_with_oracle, solve_with_sorted

from infoshot import FeatureTable, sample_tasks
from infoshot.benchmark import bench, with_interval
from infoshot.core.atomic import write_atomically
from infoshot.core.environment import environment
from infoshot.features import prepare, read_features
from infoshot.metrics import accuracy, mean_interval
from infoshot.tasks import TaskSpec
from infoshot.tasks.regimes import parse_regime

FEATURES = [
    Path(f"results/training/cub-resnet18/seed{i}/cub_test_resnet18_seed{i}.safetensors")
    for i in range(4)
]
ORACLES = {ORACLE: solve_with_oracle, SORTED: solve_with_sorted}
METHODS = ("prototype", "tim-adm", "alpha-tim", "tim-auto", "bavardage", "alpha-am", *ORACLES)
FEWER_TASKS = {"alpha-am": 5}  # divide the number of tasks by this
PUBLISHED = {"alpha-tim": "75.7", "bavardage": "82.0", "alpha-am": "79.9"}  # 1-shot
CHUNK = 100


def measure(features: Path, method: str, shots: int, n_tasks: int) -> dict[str, object]:
    """Accuracy of a method on the features of one network."""
    n_tasks //= FEWER_TASKS.get(method, 1)
    about = {"features": features.name, "method": method, "shots": shots, "tasks": n_tasks}
    if method not in ORACLES:
        (row,) = bench(
            features=features, methods=method, shots=shots, regimes="dirichlet:2", tasks=n_tasks,
            progress=False,
        ).rows  # fmt: skip
        return {**about, "mean": row.mean, "ci95": row.ci95}
    table = read_features(features)
    unit = FeatureTable(prepare(table, "l2"), table.labels)
    spec = TaskSpec(n_way=5, n_shot=shots, n_query=15, regime=parse_regime("dirichlet:2"))
    parts = []
    for start in range(0, n_tasks, CHUNK):
        tasks, labels = sample_tasks(unit, spec, min(CHUNK, n_tasks - start), start=start)
        parts.append(accuracy(ORACLES[method](tasks, labels).exp(), labels))
    mean, half = mean_interval(torch.cat(parts))
    return {**about, "mean": 100 * mean, "ci95": 100 * half}


def table(cells: list[dict[str, object]]) -> list[list[str]]:
    """Lines of the table: mean over the networks, with the interval over tasks.

    All networks are measured on the same tasks, so the interval is that of one network.
    """
    measured = {cell["method"] for cell in cells}
    lines = []
    for method in (method for method in METHODS if method in measured):
        line, n_tasks = [method], []
        for shots in (1, 5):
            found = [c for c in cells if (c["method"], c["shots"]) == (method, shots)]
            if not found:
                line += ["-", "-"]
                continue
            means = [float(str(c["mean"])) for c in found]
            half = sum(float(str(c["ci95"])) for c in found) / len(found)
            line.append(with_interval(sum(means) / len(means), half))
            line.append(f"{min(means):.1f} to {max(means):.1f}")
            n_tasks.append(f"{len(found)} x {found[0]['tasks']}")
        lines.append([*line, " / ".join(dict.fromkeys(n_tasks)), PUBLISHED.get(method, "")])
    return lines


def main() -> None:
    """Measure what is missing and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/imbalanced_cub.json"))
    parser.add_argument("--tasks", type=int, default=500, help="tasks of each network")
    parser.add_argument("--only", default="", help="methods to measure")
    parser.add_argument("--features", type=int, nargs="*", default=range(len(FEATURES)))
    arguments = parser.parse_args()
    cells = json.loads(arguments.out.read_text())["cells"] if arguments.out.exists() else []
    names = arguments.only.split(",") if arguments.only else list(METHODS)
    done = {(cell["features"], cell["method"], cell["shots"]) for cell in cells}
    for method in names:
        for shots in (1, 5):
            for features in (FEATURES[i] for i in arguments.features):
                if (features.name, method, shots) not in done:
                    cells.append(measure(features, method, shots, arguments.tasks))
                    document = {"seed": 0, "environment": environment("cpu"), "cells": cells}
                    write_atomically(arguments.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
