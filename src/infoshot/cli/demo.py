"""``infoshot demo``: the paper's method on features that come with the package."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.benchmark import bench, result_table, rows_to_json
from infoshot.benchmark.convergence import convergence_curve
from infoshot.benchmark.plots import plot_convergence
from infoshot.cli._console import print_table, stdout
from infoshot.cli.demo_digits import label_digits
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.types import ResultRow
from infoshot.features import default_features_path, read_features
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec

_TASKS = {"prototype": 10_000, "tim-adm": 10_000, "tim-gd": 400}
_SKEWED, _SKEWED_TASKS = ("prototype", "tim-adm", "tim-auto"), 2000
_CURVE_TASKS = 128

_NEXT = """
What to try next, with images: a folder of examples per class, and a folder of photos
  infoshot label examples/ photos/ --out run/            labels, confidences, a report
With your own features X [N, D] and labels y [N], -1 for unlabelled
  numpy.savez("mine.npz", features=X, labels=y)          in Python: make a feature file
  infoshot solve --features mine.npz --out labels.csv    label every row whose label is -1
  infoshot bench --features mine.npz                     this table (20 labelled rows per class)
  infoshot methods                                       what there is to choose from
(in a clone, 'source .venv/bin/activate' first), or all in Python:
  from infoshot import TIMClassifier
  TIMClassifier().fit(X, y).transduction_
"""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the rows.")] = Path(
        "infoshot-demo"
    ),
) -> None:
    """The paper's methods on mini-ImageNet features, then a pile of image files; two minutes.

    Example: infoshot demo --out infoshot-demo
    """
    make_folder(out)
    path = default_features_path()
    table = read_features(path)
    skewed = "dirichlet:2"
    parts = [(name, "balanced", n_tasks) for name, n_tasks in _TASKS.items()]
    parts += [(name, skewed, _SKEWED_TASKS) for name in _SKEWED]
    rows: list[ResultRow] = []
    for name, regime, n_tasks in parts:
        rows += bench(path, name, tasks=n_tasks, regimes=regime, progress=True).rows
        write_atomically(out / "results.json", rows_to_json(rows))
    console = stdout()
    for regime, title in (
        ("balanced", "mini-ImageNet test classes, ResNet-18 features: accuracy in %, 95% interval"),
        (skewed, "The same with imbalanced classes among the queries:"),
    ):
        print_table(*result_table([row for row in rows if row.regime == regime]), title=title)
    console.print("Solving some tasks step by step for the figure ...")
    curves = [
        convergence_curve(table, METHODS[name], TaskSpec(), n_tasks=_CURVE_TASKS).summary()
        for name in _TASKS
    ]
    figure = out / "convergence.png"
    title = f"5-way 1-shot, mini-ImageNet test classes: mean and 95% band of {_CURVE_TASKS} tasks"
    plot_convergence(curves, [figure], title)
    console.print(f"Accuracy and mutual information against time: {figure}\n")
    label_digits(out / "digits")
    console.print(_NEXT, soft_wrap=True)
