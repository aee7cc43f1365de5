"""All methods in all regimes, and hard cases for tim-auto: tables and figures in results/.

python scripts/methods.py                    an hour on two CPU cores; gradient methods: 1,000 tasks
python scripts/methods.py --device cuda      10,000 tasks everywhere, five minutes on an H200
python scripts/methods.py --only distill     measure these methods, keep the other rows
python scripts/methods.py --sorted "75 q"    measure sorted proportions in these cells

Accuracies are means over 10,000 tasks unless the table says otherwise. Times and memory are those
of one CPU core of the same machine on balanced tasks.
"""

import argparse
import dataclasses
import json
from collections.abc import Collection, Iterator
from pathlib import Path

import imbalanced_cub
import torch
from oracles import ORACLE, SORTED, solve_with_oracle, solve_with_sorted
from torch import Tensor

from infoshot import TaskBatch, solve
from infoshot.benchmark import bench, rows_from_json, rows_to_json, with_interval
from infoshot.benchmark.plots import plot_regimes, plot_time
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.environment import environment
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features import default_features_path, prepare, read_features
from infoshot.metrics import accuracy, mean_interval
from infoshot.solvers import METHODS, method_by_name
from infoshot.tasks import TaskSpec, sample_tasks
from infoshot.tasks.regimes import parse_regime

REGIMES = ["balanced", "dirichlet:2", "effective:2", "effective:1", "few:5", "few:1", "open:25"]
SLOW = {"ent-min", "ostim", "alpha-tim", "alpha-am", "tim-gd"}  # a thousand gradient steps
CELLS = [  # for tim-auto: name, ways, shots (0: one to five), queries per class, regime
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
MOST_ON_A_CPU = 2000  # tasks of a cell
COMPARED = ("prototype", "shrunken-prototype", "tim-adm", "tim-auto")
MOST_SORTED = 1000  # tasks of sorted proportions on a CPU; 300 steps for each of about 30 priors


def accuracies(device: str, n_tasks: int, names: Collection[str]) -> Iterator[ResultRow]:
    """Rows of these methods, every regime and number of shots."""
    for regime in REGIMES:
        for name in names:
            n = min(n_tasks, 1000) if device == "cpu" and name in SLOW else n_tasks
            yield from bench(methods=name, regimes=regime, tasks=n, device=device).rows


def times(names: Collection[str]) -> Iterator[ResultRow]:
    """Rows of these methods on one core, for time and memory."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in names:
        n_tasks = 64 if name in SLOW else 512
        for n_shot in (1, 5):
            bench(methods=name, shots=n_shot, tasks=8, threads=1)  # warm-up
            yield from bench(methods=name, shots=n_shot, tasks=n_tasks, threads=1).rows
    torch.set_num_threads(n_threads)


def cells_of_tim_auto(
    table: FeatureTable, device: str, n_tasks: int, methods: Collection[str]
) -> Iterator[dict[str, object]]:
    """Accuracy of some of the compared methods in cases where tim-auto must not do harm."""
    n_tasks = min(n_tasks, MOST_ON_A_CPU) if device == "cpu" else n_tasks
    for method in methods:
        known = METHODS["tim-adm" if method == ORACLE else method]
        prepared = FeatureTable(
            prepare(table, known.preparation).to(device), table.labels.to(device)
        )
        for name, n_way, n_shot, n_query, regime in CELLS:
            spec = TaskSpec(
                n_way=n_way, n_shot=n_shot or 5, n_query=n_query, regime=parse_regime(regime)
            )
            scores = []
            for start in range(0, n_tasks, 1000):
                tasks, labels = sample_tasks(
                    prepared, spec, min(1000, n_tasks - start), start=start
                )
                if n_shot == 0:
                    tasks = _keep_one_to_five(tasks)
                if method == ORACLE:
                    p = solve_with_oracle(tasks, labels)
                else:
                    p = solve(known.solver, tasks, validate=False).probabilities
                scores.append(accuracy(p, labels))
            yield _cell(name, n_shot, method, torch.cat(scores))


def cells_of_sorted_proportions(
    table: FeatureTable, device: str, n_tasks: int, text: str
) -> Iterator[dict[str, object]]:
    """Accuracy of the fair bound in the cells whose name contains the text, on fewer tasks."""
    unit = FeatureTable(prepare(table, "l2").to(device), table.labels.to(device))
    n_tasks = min(n_tasks, MOST_SORTED) if device == "cpu" else n_tasks
    for name, n_way, n_shot, n_query, regime in CELLS:
        if text not in name:
            continue
        spec = TaskSpec(
            n_way=n_way, n_shot=n_shot or 5, n_query=n_query, regime=parse_regime(regime)
        )
        scores, size = [], 100 if device == "cpu" else 1000
        for start in range(0, n_tasks, size):
            tasks, labels = sample_tasks(unit, spec, min(size, n_tasks - start), start=start)
            if n_shot == 0:
                tasks = _keep_one_to_five(tasks)
            scores.append(accuracy(solve_with_sorted(tasks, labels), labels))
        yield _cell(name, n_shot, SORTED, torch.cat(scores))


def _cell(name: str, n_shot: int, method: str, scores: Tensor) -> dict[str, object]:
    mean, half = mean_interval(scores.cpu())
    return {
        "cell": name, "shots": n_shot or "1-5", "method": method, "tasks": len(scores),
        "mean": 100 * mean, "ci95": 100 * half,
    }  # fmt: skip


def _keep_one_to_five(tasks: TaskBatch) -> TaskBatch:
    """Keep k + 1 examples of class k of five-shot tasks."""
    keep = [5 * k + i for k in range(tasks.n_way) for i in range(k + 1)]
    return dataclasses.replace(tasks, z_sup=tasks.z_sup[:, keep], y_sup=tasks.y_sup[:, keep])


def markdown(rows: list[ResultRow], timed: list[ResultRow], auto: list[dict[str, object]]) -> str:
    """All tables."""
    return (
        "\n\n".join(
            (
                "# All methods in all regimes",
                _INTRODUCTION.format(devices=_devices(rows)),
                *(part for shot in (1, 5) for part in _accuracy_table(rows, timed, shot)),
                "## Cases where tim-auto must do no harm",
                _ORACLE_TEXT,
                _auto_table(auto),
                "## Imbalanced tasks of CUB, beside published numbers",
                _CUB_TEXT,
                _cub_table(),
            )
        )
        + "\n"
    )


_INTRODUCTION = (
    "5-way tasks, 15 queries per class, embedded features (20 test classes of mini-ImageNet, "
    "ResNet-18), seed 0. Accuracy in percent with 95 % interval; NLL in nats and ECE in percent on "
    "balanced tasks (in brackets: ECE for five queries in total); AUROC of the outlier score with "
    "25 of 75 queries from classes without support; time and memory of one CPU core on balanced "
    "tasks, including drawing (0.15 ms) and scoring, in the chunks that `solve` makes. The rows "
    "are in `methods.json`. Machines of the accuracies and commands: {devices}."
)
_ORACLE_TEXT = (
    "Accuracy in percent with 95 % interval; in brackets the gain over `prototype`. *Oracle "
    "proportions* is TIM-ADM with the true class proportions of each task as its prior (300 steps "
    "of size 0.3, at least 0.001 for every class). It shows the value of knowing them and is not a "
    "competitor, because no method may know them. It also tells which cluster of queries is which "
    "class. *Sorted proportions* does not: TIM-ADM is given the true proportions in sorted order "
    "and finds which class has which itself, by exchanging two as long as the objective falls "
    "(fewer tasks, see `tim_auto.json`; without a number: not measured)."
)
_CUB_TEXT = (
    "The 50 test classes of CUB, dirichlet:2, 75 queries, accuracy in percent: the mean over "
    "four ResNet-18 trained on the base classes (`training/cub-resnet18`), the 95 % interval of"
    " one network (all have the same tasks), and the lowest and highest network; alpha-am, "
    "which takes a second per task, on the first 100 tasks, where tim-auto has 76.6 and alpha-"
    "tim 74.8 (1-shot). The published numbers are those of other networks of this size; alpha-"
    "TIM is higher with them too. BAVARDAGE is published with the within-class scatter of the "
    "base classes, which these feature files do not hold (see `bavardage.py`), so tim-auto does "
    "not whiten here either. One CPU core, `python scripts/imbalanced_cub.py`; each network's "
    "numbers are in `imbalanced_cub.json`."
)


def _devices(rows: list[ResultRow]) -> str:
    """The machine and the command of every method; times of different machines differ."""
    methods: dict[tuple[str, str], list[str]] = {}
    measured = {row.method: row for row in reversed(rows)}
    for name in (name for name in METHODS if name in measured):
        row = measured[name]
        machine = row.environment.get("gpu") or row.environment.get("processor", "a CPU")
        methods.setdefault((str(machine), row.device), []).append(name)
    (first, device), *others = methods
    texts = [f"{first}, `python scripts/methods.py --device {device}`"]
    for machine, device in others:
        names = ",".join(methods[machine, device])
        texts.append(f"{machine}, `python scripts/methods.py --device {device} --only {names}`")
    return "; ".join(texts)


def _accuracy_table(rows: list[ResultRow], timed: list[ResultRow], shot: int) -> tuple[str, str]:
    of = {(row.method, row.regime): row for row in rows if row.shots == shot}
    time = {row.method: row for row in timed if row.shots == shot}
    header = ["method", "assumes", "tasks", *REGIMES, "AUROC", "NLL", "ECE", "ms/task", "MB"]
    lines = []
    for name in METHODS:
        if (name, "balanced") not in of:
            continue
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
                    if (cell, shots, m) in mean
                    else "-"
                    for m in (*COMPARED[1:], ORACLE, SORTED)
                ),
            ]
        )
    return _table(["task", "shots", *COMPARED, ORACLE, SORTED], lines)


def _cub_table() -> str:
    cells = json.loads(Path("results/imbalanced_cub.json").read_text())["cells"]
    header = [
        "method",
        "1-shot",
        "networks",
        "5-shot",
        "networks",
        "networks x tasks",
        "published 1-shot",
    ]
    return _table(header, imbalanced_cub.table(cells))


def _table(header: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines))


def _plain(rows: list[ResultRow]) -> list[object]:
    parsed: list[object] = json.loads(rows_to_json(rows))
    return parsed


def _format(**parts: list[object]) -> str:
    """Format lists of rows as JSON, with one row per line."""
    texts = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in parts.items()
    )
    return "{" + ", ".join(texts) + "}\n"


def _stored(path: Path, part: str, names: Collection[str]) -> list[ResultRow]:
    """Rows of earlier measurements of other methods than these."""
    if set(names) == set(METHODS):
        return []
    rows = rows_from_json(json.dumps(json.loads(path.read_text())[part]))
    return [row for row in rows if row.method in METHODS and row.method not in names]


def main() -> None:
    """Run everything and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the files")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(METHODS), help="names of methods")
    parser.add_argument(
        "--sorted", help="only sorted proportions, in cells with this in their name"
    )
    arguments = parser.parse_args()
    names = [method_by_name(name).name for name in arguments.only.split(",")]
    if arguments.sorted is not None:
        names = []
    table, out = read_features(default_features_path()), arguments.out
    make_folder(out)
    path = out / "methods.json"
    timed = [*_stored(path, "time", names), *times(names)]
    rows = _stored(path, "accuracy", names)
    for row in accuracies(arguments.device, arguments.tasks, names):
        rows.append(row)
        write_atomically(path, _format(accuracy=_plain(rows), time=_plain(timed)))
    rows.sort(key=lambda row: list(METHODS).index(row.method))  # for the figures
    auto = _auto_cells(out / "tim_auto.json", rows, table, arguments, names)
    write_atomically(out / "methods.md", markdown(rows, timed, auto))
    five = [r for r in rows if r.shots == 5 and r.regime in ("balanced", "dirichlet:2")]
    milliseconds = {row.method: row.per_task_ms for row in timed if row.shots == 5}
    plot_time(five, milliseconds, out / "methods-time.png")
    plot_regimes(rows, out / "methods-regimes.png")


def _auto_cells(
    path: Path,
    rows: list[ResultRow],
    table: FeatureTable,
    arguments: argparse.Namespace,
    names: Collection[str],
) -> list[dict[str, object]]:
    """Measure and write the cells that the methods, or ``--sorted``, change; read the others."""
    device, n_tasks, text = arguments.device, arguments.tasks, arguments.sorted
    document = json.loads(path.read_text()) if path.exists() else {"cells": []}
    methods = [name for name in COMPARED if name in names]
    if methods == list(COMPARED):
        methods.append(ORACLE)
        text = ""
    if methods:
        measured = list(cells_of_tim_auto(table, device, n_tasks, methods))
        kept = [cell for cell in document["cells"] if cell["method"] not in methods]
        document |= {"seed": 0, "features_digest": rows[0].features_digest}
        document |= {"environment": environment(device), "cells": kept + measured}
    if text is not None:
        measured = list(cells_of_sorted_proportions(table, device, n_tasks, text))
        document["sorted_environment"] = environment(device)
        document["cells"] = [
            cell
            for cell in document["cells"]
            if cell["method"] != SORTED or text not in str(cell["cell"])
        ] + measured
    write_atomically(path, json.dumps(document, indent=1) + "\n")
    return list(document["cells"])


if __name__ == "__main__":
    main()
