"""All methods in all regimes, and tim-auto where it is hard: tables and pictures in results/.

python scripts/methods.py                    two CPU cores: gradient methods on 1,000 tasks, an hour
python scripts/methods.py --device cuda      10,000 tasks everywhere, five minutes on an H200

Accuracies are those of 10,000 tasks (the table says where fewer). Times and memory are those of one
CPU core of the same machine, on balanced tasks.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from infoshot import TaskBatch, TimAdm, solve
from infoshot.benchmark import Protocol, rows_to_json, run_cell
from infoshot.benchmark.plots import plot_regimes, plot_time
from infoshot.benchmark.tables import with_interval
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features import default_features_path, digest, prepare, read_features
from infoshot.metrics import accuracy, mean_interval
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec, sample_tasks
from infoshot.tasks.regimes import parse_regime

REGIMES = ["balanced", "dirichlet:2", "effective:2", "effective:1", "few:5", "few:1", "open:25"]
SLOW = {"ent-min", "ostim", "alpha-tim", "tim-gd"}  # a thousand gradient steps
CELLS = [  # of tim-auto: name, ways, shots (0: one to five), queries per class, regime
    *(
        (f"{5 * n} queries, {regime}", 5, shots, n, regime)
        for n in (3, 6, 15)
        for regime in ("balanced", "dirichlet:2", "effective:2", "effective:1")
        for shots in (1, 5)
    ),
    *(
        (f"10-way, {regime}", 10, shots, 15, regime)
        for regime in ("balanced", "dirichlet:2", "effective:4")
        for shots in (1, 5)
    ),
    *(
        (f"one to five shots, {regime}", 5, 0, 15, regime)
        for regime in ("balanced", "dirichlet:2", "effective:2")
    ),
]
COMPARED = ("prototype", "shrunken-prototype", "tim-adm", "tim-auto")
TOLD = "told the shares"


def accuracies(table: FeatureTable, device: str, n_tasks: int) -> Iterator[ResultRow]:
    """Rows of every method, regime and number of shots."""
    path = default_features_path()
    for regime in REGIMES:
        for method in METHODS.values():
            n = min(n_tasks, 1000) if device == "cpu" and method.name in SLOW else n_tasks
            for n_shot in (1, 5):
                spec = TaskSpec(n_shot=n_shot, regime=parse_regime(regime))
                protocol = Protocol(spec=spec, n_tasks=n, device=device)
                yield run_cell(
                    table, method, protocol, features_name=path.name, features_digest=digest(path)
                )


def times(table: FeatureTable) -> Iterator[ResultRow]:
    """Rows of every method on one core, for time and memory."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for method in METHODS.values():
        n_tasks = 64 if method.name in SLOW else 512
        for n_shot in (1, 5):
            protocol = Protocol(spec=TaskSpec(n_shot=n_shot), n_tasks=n_tasks, n_threads=1)
            run_cell(table, method, dataclasses.replace(protocol, n_tasks=8))  # warm
            path = default_features_path()
            yield run_cell(
                table, method, protocol, features_name=path.name, features_digest=digest(path)
            )
    torch.set_num_threads(n_threads)


def cells_of_tim_auto(
    table: FeatureTable, device: str, n_tasks: int
) -> Iterator[dict[str, object]]:
    """Accuracy of a few methods where tim-auto must not do harm."""
    unit = FeatureTable(prepare(table, "l2").to(device), table.labels.to(device))
    for name, n_way, n_shot, n_query, regime in CELLS:
        spec = TaskSpec(
            n_way=n_way, n_shot=n_shot or 5, n_query=n_query, regime=parse_regime(regime)
        )
        scores: dict[str, list[Tensor]] = {}
        for start in range(0, n_tasks, 1000):
            tasks, labels = sample_tasks(unit, spec, min(1000, n_tasks - start), start=start)
            if n_shot == 0:
                tasks = _one_to_five(tasks)
            for method in COMPARED:
                p = solve(METHODS[method].solver, tasks, validate=False).probabilities
                scores.setdefault(method, []).append(accuracy(p, labels))
            scores.setdefault(TOLD, []).append(accuracy(_told(tasks, labels), labels))
        for method, parts in scores.items():
            mean, half = mean_interval(torch.cat(parts).cpu())
            yield {
                "cell": name, "shots": n_shot or "1-5", "method": method, "tasks": n_tasks,
                "mean": 100 * mean, "ci95": 100 * half,
            }  # fmt: skip


def _one_to_five(tasks: TaskBatch) -> TaskBatch:
    """Five-shot tasks of which class k keeps k + 1 examples."""
    keep = [5 * k + i for k in range(tasks.n_way) for i in range(k + 1)]
    return dataclasses.replace(tasks, z_sup=tasks.z_sup[:, keep], y_sup=tasks.y_sup[:, keep])


@torch.inference_mode()
def _told(tasks: TaskBatch, labels: Tensor) -> Tensor:
    """TIM-ADM with the true class shares as its prior: what knowing them would be worth."""
    solver = TimAdm(prototype_step_size=0.3)
    state = solver.init(tasks)
    classes = torch.arange(tasks.n_way, device=labels.device)
    shares = (labels.unsqueeze(-1) == classes).to(tasks.z_sup.dtype).mean(1)
    state.log_prior = shares.clamp(min=1e-3).log().unsqueeze(-1)
    for _ in range(300):
        state = solver.step(tasks, state)
    return solver.log_posterior(tasks, state)


def markdown(rows: list[ResultRow], timed: list[ResultRow], auto: list[dict[str, object]]) -> str:
    """The three tables."""
    return (
        "\n\n".join(
            (
                "# All methods in all regimes",
                _INTRODUCTION.format(
                    device=rows[0].environment.get("gpu", "a CPU"), short=rows[0].device
                ),
                *(part for shot in (1, 5) for part in _accuracy_table(rows, timed, shot)),
                "## tim-auto where it must do no harm",
                _TOLD_TEXT,
                _auto_table(auto),
            )
        )
        + "\n"
    )


_INTRODUCTION = (
    "5-way tasks, 15 queries per class, embedded features (20 test classes of mini-ImageNet, "
    "ResNet-18), seed 0. Accuracy in percent with 95 % interval; NLL in nats and ECE in percent on "
    "balanced tasks (in brackets ECE for five queries in all); AUROC of the outlier score with 25 "
    "of 75 queries of no class; time and memory of one CPU core on balanced tasks, with drawing "
    "(0.15 ms) and scoring, in chunks as `solve` makes them. Accuracies were computed on: "
    "{device}. Made by `python scripts/methods.py --device {short}`; rows are in `methods.json`."
)
_TOLD_TEXT = (
    "Accuracy in percent with 95 % interval, the gain over `prototype` in brackets. *Told the "
    "shares* is TIM-ADM given the true share of every class of every task as its prior (steps of "
    "0.3, 300 of them, at least 0.001 for every class): what knowing them would be worth. No "
    "method may know them, so it is no competitor."
)


def _accuracy_table(rows: list[ResultRow], timed: list[ResultRow], shot: int) -> tuple[str, str]:
    of = {(row.method, row.regime): row for row in rows if row.shots == shot}
    time = {row.method: row for row in timed if row.shots == shot}
    header = ["method", "assumes", "tasks", *REGIMES, "AUROC", "NLL", "ECE", "ms/task", "MB"]
    lines = []
    for name in METHODS:
        first = of[name, "balanced"]
        lines.append(
            [
                name,
                ", ".join(first.assumes) or "nothing",
                f"{first.tasks:,}",
                *(with_interval(of[name, r].mean, of[name, r].ci95) for r in REGIMES),
                with_interval(of[name, "open:25"].auroc, of[name, "open:25"].auroc_ci95),
                f"{first.nll:.2f}",
                f"{first.ece:.1f} ({of[name, 'few:5'].ece:.1f})",
                f"{time[name].per_task_ms:.3g}",
                f"{time[name].memory_mb:.0f}",
            ]
        )
    return f"## {shot}-shot", _table(header, lines)


def _auto_table(auto: list[dict[str, object]]) -> str:
    mean = {(c["cell"], c["shots"], c["method"]): float(str(c["mean"])) for c in auto}
    half = {(c["cell"], c["shots"], c["method"]): float(str(c["ci95"])) for c in auto}
    lines = []
    for cell, shots in dict.fromkeys((c["cell"], c["shots"]) for c in auto):
        plain = mean[cell, shots, "prototype"]
        lines.append(
            [
                str(cell),
                str(shots),
                with_interval(plain, half[cell, shots, "prototype"]),
                *(
                    with_interval(mean[cell, shots, m], half[cell, shots, m])
                    + f" ({mean[cell, shots, m] - plain:+.1f})"
                    for m in (*COMPARED[1:], TOLD)
                ),
            ]
        )
    return _table(["task", "shots", *COMPARED, TOLD], lines)


def _table(header: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines))


def _plain(rows: list[ResultRow]) -> object:
    return json.loads(rows_to_json(rows))


def main() -> None:
    """Run everything, then write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the files")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", type=int, default=10_000)
    arguments = parser.parse_args()
    table, out = read_features(default_features_path()), arguments.out
    make_folder(out)
    timed = list(times(table))
    rows: list[ResultRow] = []
    for row in accuracies(table, arguments.device, arguments.tasks):
        rows.append(row)
        document = {"accuracy": _plain(rows), "time": _plain(timed)}
        write_atomically(out / "methods.json", json.dumps(document, indent=1) + "\n")
    auto = list(cells_of_tim_auto(table, arguments.device, arguments.tasks))
    about = {"seed": 0, "features_digest": rows[0].features_digest}
    cells = {**about, "environment": rows[0].environment, "cells": auto}
    write_atomically(out / "tim_auto.json", json.dumps(cells, indent=1) + "\n")
    write_atomically(out / "methods.md", markdown(rows, timed, auto))
    five = [r for r in rows if r.shots == 5 and r.regime in ("balanced", "dirichlet:2")]
    milliseconds = {row.method: row.per_task_ms for row in timed if row.shots == 5}
    plot_time(five, milliseconds, out / "methods-time.png")
    plot_regimes(rows, out / "methods-regimes.png")


if __name__ == "__main__":
    main()
