"""``infoshot demo``: the paper's method on features that come with the package."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.atomic import write_atomically
from infoshot.benchmark import Protocol, result_table, rows_to_json, run_cell
from infoshot.benchmark.convergence import convergence_curve
from infoshot.benchmark.plots import plot_convergence
from infoshot.cli.console import print_table, progress_bar, stdout
from infoshot.data import TaskSpec
from infoshot.errors import DataError
from infoshot.features import default_features_path, digest, read_features
from infoshot.solvers import METHODS
from infoshot.types import ResultRow

_TASKS = {"prototype": 10_000, "tim-adm": 10_000, "tim-gd": 400}
_CURVE_TASKS = 128

_NEXT = """
What to try next
  infoshot bench --features mine.safetensors     the same table on your own features
  infoshot solve --features mine.safetensors --out labels.csv
                                                 label every row whose label is -1
  infoshot methods                               what there is to choose from

A feature file holds features [N, D] and labels [N], -1 for unlabelled. From NumPy:
  numpy.savez("mine.npz", features=X, labels=y)
In Python:
  from infoshot import TIMClassifier
  TIMClassifier().fit(X, y).transduction_
"""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the rows.")] = Path(
        "infoshot-demo"
    ),
) -> None:
    """Prototypes, TIM-ADM and TIM-GD on mini-ImageNet features, with a picture; takes a minute.

    Example: infoshot demo --out infoshot-demo
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{out}: cannot be made a folder ({error.strerror}).") from error
    path = default_features_path()
    table, sha256 = read_features(path), digest(path)
    rows, curves = [], []
    with progress_bar() as progress:
        bar = progress.add_task("solving tasks", total=2 * sum(_TASKS.values()))
        for name, n_tasks in _TASKS.items():
            for n_shot in (1, 5):
                progress.update(bar, description=f"{name} {n_shot}-shot")
                rows.append(
                    run_cell(
                        table,
                        METHODS[name],
                        Protocol(spec=TaskSpec(n_shot=n_shot), n_tasks=n_tasks),
                        features_name=path.name,
                        features_digest=sha256,
                        on_progress=lambda n_done: progress.advance(bar, n_done),
                    )
                )
        for name in _TASKS:
            progress.update(bar, description=f"{name} step by step")
            curves.append(convergence_curve(table, METHODS[name], TaskSpec(), n_tasks=_CURVE_TASKS))
    write_atomically(out / "results.json", rows_to_json(rows))
    figure = out / "convergence.png"
    plot_convergence(
        curves, figure, f"5-way 1-shot, mini-ImageNet test classes, {_CURVE_TASKS} tasks"
    )
    _print(rows, figure)


def _print(rows: list[ResultRow], figure: Path) -> None:
    header, lines = result_table(rows)
    print_table(
        header,
        lines,
        title="mini-ImageNet test classes, ResNet-18 features: accuracy in %, 95% interval",
    )
    console = stdout()
    console.print(f"Accuracy and mutual information against time: {figure}", highlight=False)
    console.print(_NEXT, highlight=False, markup=False, soft_wrap=True)
