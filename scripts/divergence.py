"""How often tim-adm diverges, whether solve reports it, and what smaller steps give.

python scripts/divergence.py NAME=FILE ...      takes a quarter of an hour on one core

The embedded features (mini-ImageNet's test classes) and those of its validation classes are always
included; useful others are CUB with a ResNet-18 trained on mini-ImageNet (cub-val, cub-test) and
with the default encoder. Names that contain "val" are validation classes: the table of candidates
is made of these only.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot import FeatureTable, Prototype, Status, TaskBatch, TimAdm, solve
from infoshot.core.atomic import write_atomically
from infoshot.core.environment import environment
from infoshot.features import default_features_path, digest, prepare, read_features
from infoshot.metrics import accuracy, auroc
from infoshot.solvers import Solver, StepEvent, solve_with_retry
from infoshot.solvers.objective import adm_loss, marginal_entropy, support_cross_entropy, tim_loss
from infoshot.tasks import TaskSpec, sample_tasks

RESULTS = Path(__file__).parents[1] / "results"
VALIDATION = RESULTS / "training/resnet18/mini_val_resnet18.safetensors"
N_TASKS = {5: 120, 10: 120, 16: 80, 20: 80, 30: 30, 50: 20}  # by ways
SHOTS = (1, 5, 10)
FAR = 10.0  # points below class means
SMALLER = TimAdm(prototype_step_size=0.25, n_steps=300)  # of every second solve
SAME_PATH = TimAdm(prototype_step_size=0.25, n_steps=600)  # as far as 150 full steps
DTYPES = {"float32": torch.float32, "float64": torch.float64}
SPACINGS = (10, 50)  # steps between two evaluations of a candidate


def cells(table: FeatureTable) -> Iterator[tuple[int, int, int]]:
    """Ways, shots and number of tasks of every cell that the table allows."""
    n_classes = len(table.labels.unique())
    for n_way, n_tasks in N_TASKS.items():
        if n_way > n_classes or (n_way == 16 and n_classes > 16):
            continue
        yield from ((n_way, n_shot, n_tasks) for n_shot in SHOTS)


def batches(
    table: FeatureTable, n_way: int, n_shot: int, n_tasks: int, dtype: torch.dtype
) -> Iterator[tuple[TaskBatch, Tensor]]:
    """Tasks in batches of at most twenty, with their query labels."""
    unit = FeatureTable(prepare(table, "l2").to(dtype), table.labels)
    spec = TaskSpec(n_way=n_way, n_shot=n_shot, seed=17)
    for start in range(0, n_tasks, 20):
        yield sample_tasks(unit, spec, min(20, n_tasks - start), start=start)


def score_cell(
    table: FeatureTable, n_way: int, n_shot: int, n_tasks: int
) -> tuple[list[dict[str, float | str]], Tensor]:
    """One row per dtype, and the accuracies of tim-adm in percent, ``(dtype, task)``."""
    rows, published = [], []
    for name, dtype in DTYPES.items():
        columns: dict[str, list[Tensor]] = {}
        for tasks, labels in batches(table, n_way, n_shot, n_tasks, dtype):
            for key, values in score_tasks(tasks, labels).items():
                columns.setdefault(key, []).append(values)
        row = summarize(**{key: torch.cat(parts) for key, parts in columns.items()})
        rows.append({"dtype": name, **row})
        published.append(torch.cat(columns["published"]).double())
    return rows, torch.stack(published)


def score_tasks(tasks: TaskBatch, labels: Tensor) -> dict[str, Tensor]:
    """Accuracies in percent and flags, ``(task,)`` each."""
    first = solve(TimAdm(), tasks, quiet=True)
    again = solve_with_retry(TimAdm(), tasks, quiet=True)
    diverged = first.status == Status.DIVERGED
    prototype = _percent(Prototype(), tasks, labels)
    published = 100 * accuracy(first.probabilities, labels)
    unreported = ~diverged & (published < prototype - FAR)
    same_path = published.clone()
    if unreported.any():
        same_path[unreported] = _percent(SAME_PATH, tasks[unreported], labels[unreported])
    return {
        "prototype": prototype,
        "published": published,
        "retried": 100 * accuracy(again.probabilities, labels),
        "smaller": _percent(SMALLER, tasks, labels),
        "same_path": same_path,
        "diverged": diverged,
        "solved_twice_again": diverged & (again.n_steps > SMALLER.n_steps),
        "diverged_again": again.status == Status.DIVERGED,
    }


def _percent(solver: Solver[Any], tasks: TaskBatch, labels: Tensor) -> Tensor:
    return 100 * accuracy(solve(solver, tasks, quiet=True).probabilities, labels)


def summarize(
    prototype: Tensor,
    published: Tensor,
    retried: Tensor,
    smaller: Tensor,
    same_path: Tensor,
    diverged: Tensor,
    solved_twice_again: Tensor,
    diverged_again: Tensor,
) -> dict[str, float]:
    """Counts and mean accuracies over the tasks of a cell."""
    far, ends_there = published < prototype - FAR, same_path < published + 2
    return {
        "tasks": len(prototype),
        "prototype": float(prototype.double().mean()),
        "published": float(published.double().mean()),
        "retried": float(retried.double().mean()),
        "smaller_steps": float(smaller.double().mean()),
        "diverged": int(diverged.sum()),
        "solved_twice_again": int(solved_twice_again.sum()),
        "diverged_again": int(diverged_again.sum()),
        "far_below": int(far.sum()),
        "far_below_and_reported": int((far & diverged).sum()),
        # The objective itself is misleading: small steps along the whole path end there too.
        "far_below_by_objective": int((far & ~diverged & ends_there).sum()),
        "far_below_and_missed": int((far & ~diverged & ~ends_there).sum()),
        "far_below_after_retry": int((diverged & (retried < prototype - FAR)).sum()),
        "worst": float((published - prototype).min()),
        "worst_after_retry": float((retried - prototype).min()),
    }


def record_candidates(tasks: TaskBatch, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Statistics every ten steps, ``(task, time)`` each, and whether a task ends far below."""
    values: dict[str, list[Tensor]] = {}
    accuracies: list[Tensor] = []

    def look(event: StepEvent) -> None:
        if event.step % 10:
            return
        log_p = event.log_posterior()
        log_p_sup = event.solver.classify(tasks.z_sup, event.prototypes())
        power = 1.1 * log_p
        log_q = torch.log_softmax(power - 0.5 * power.logsumexp(1, keepdim=True), dim=-1)
        weights = {"lam": 0.1, "beta": 1.0, "alpha": 0.1}
        right = log_p_sup.argmax(-1) == tasks.y_sup
        found = {
            "TIM loss": tim_loss(log_p_sup, tasks.y_sup, log_p, **weights),
            "ADM loss": adm_loss(log_p_sup, tasks.y_sup, log_p, log_q, **weights),
            "support cross-entropy": support_cross_entropy(log_p_sup, tasks.y_sup),
            "support error": 1 - right.to(log_p.dtype).mean(-1),
            "negative marginal entropy": -marginal_entropy(log_p),
        }
        for name, value in found.items():
            values.setdefault(name, []).append(value.double())
        accuracies.append(100 * accuracy(log_p, labels))

    solve(TimAdm(), tasks, on_step=look, chunk_size=len(tasks), quiet=True)
    far = accuracies[-1] < accuracies[0] - FAR
    return {name: torch.stack(parts, dim=1) for name, parts in values.items()}, far


def compare_candidates(tables: dict[str, FeatureTable]) -> list[dict[str, float | str]]:
    """How well the rise of each statistic finds the tasks that end far below class means."""
    curves: dict[str, list[Tensor]] = {}
    far: list[Tensor] = []
    for table in tables.values():
        for n_way, n_shot, n_tasks in cells(table):
            for tasks, labels in batches(table, n_way, n_shot, n_tasks, torch.float32):
                found, ends_far = record_candidates(tasks, labels)
                far.append(ends_far)
                for name, values in found.items():
                    curves.setdefault(name, []).append(values)
    return [
        {"statistic": name, "spacing": spacing, "rule": rule, **_separate(score, torch.cat(far))}
        for name, parts in curves.items()
        for spacing in SPACINGS
        for rule, score in _rises(torch.cat(parts)[:, :: spacing // 10]).items()
    ]


def _rises(curve: Tensor) -> dict[str, Tensor]:
    """Rise above the lowest value, plain and relative to the decrease before."""
    lowest = curve.amin(1)
    rise, gain = curve[:, -1] - lowest, curve[:, 0] - lowest
    return {"rise": rise, "rise over decrease": rise / gain.clamp(min=0.01)}


def _separate(score: Tensor, far: Tensor) -> dict[str, float]:
    """AUROC, and how many other tasks a threshold that finds 95 % of the far ones reports."""
    threshold = score[far].quantile(0.05)
    return {
        "tasks": len(far),
        "far_below": int(far.sum()),
        "auroc": float(auroc(score.unsqueeze(0), far.unsqueeze(0))),
        "others_at_95_percent": int((~far & (score >= threshold)).sum()),
    }


def main() -> None:
    """Measure all cells and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", nargs="*", help="NAME=FILE")
    parser.add_argument("--out", type=Path, default=RESULTS / "divergence.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    files = {"mini-test": default_features_path(), "mini-val": VALIDATION}
    files |= {name: Path(path) for name, _, path in (f.partition("=") for f in arguments.features)}
    tables = {name: read_features(path) for name, path in files.items()}
    rows = []
    for name, table in tables.items():
        for cell in cells(table):
            found, published = score_cell(table, *cell)
            apart = (published[0] - published[1]).abs()
            agreement = {
                "float32_minus_float64": float((published[0] - published[1]).mean()),
                "tasks_that_differ": int((apart > 1).sum()),
            }
            about = {"features": name, "ways": cell[0], "shots": cell[1], **agreement}
            rows += [{**about, **row} for row in found]
            print(*rows[-2:], sep="\n", flush=True)
    validation = {name: table for name, table in tables.items() if "val" in name}
    document = {
        "environment": environment("cpu"),
        "features_digests": {name: digest(path) for name, path in files.items()},
        "cells": rows,
        "candidates": compare_candidates(validation),
    }
    write_atomically(arguments.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
