"""``infoshot demo``: the paper's methods on features of the package, then image files."""

import csv
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from infoshot import labelling
from infoshot.benchmark import bench, result_table, rows_to_json
from infoshot.benchmark.convergence import convergence_curve
from infoshot.benchmark.plots import plot_convergence
from infoshot.cli._console import complain, print_table, stdout
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.types import ResultRow
from infoshot.features import default_features_path, read_features
from infoshot.labelling import LabelResult
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec

_TASKS = {"prototype": 10_000, "tim-adm": 10_000, "tim-gd": 400}
_IMBALANCED, _IMBALANCED_METHODS = "dirichlet:2", ("prototype", "tim-adm", "tim-auto")
_IMBALANCED_TASKS, _CURVE_TASKS = 2000, 128
_EXAMPLES, _PHOTOS, _SIDE = 2, 60, 96
_NEXT = """
What to try next, with images: one folder of examples per class, and a folder of photos
  infoshot label examples/ photos/ --out run/            labels, confidences, a report
With your own features X [N, D] and labels y [N], -1 for unlabelled
  numpy.savez("mine.npz", features=X, labels=y)          in Python: write a feature file
  infoshot solve --features mine.npz --out labels.csv    label every row whose label is -1
  infoshot bench --features mine.npz                     this table (20 labelled rows per class)
  infoshot methods                                       the methods to choose from
(in a clone, 'source .venv/bin/activate' first), or all in Python:
  import infoshot
  infoshot.label("examples", "photos", "run")
  infoshot.TIMClassifier().fit(X, y).transduction_
"""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the rows.")] = Path(
        "infoshot-demo"
    ),
) -> None:
    """Run the paper's methods on mini-ImageNet features, then label images; two to three minutes.

    Example: infoshot demo --out infoshot-demo
    """
    make_folder(out)
    _compare_methods(out)
    _draw_convergence(out / "convergence.png")
    _label_digits(out / "digits")
    stdout().print(_NEXT, soft_wrap=True)


def _compare_methods(out: Path) -> None:
    rows: dict[str, list[ResultRow]] = {"balanced": [], _IMBALANCED: []}
    parts = [("balanced", name, n_tasks) for name, n_tasks in _TASKS.items()]
    parts += [(_IMBALANCED, name, _IMBALANCED_TASKS) for name in _IMBALANCED_METHODS]
    for regime, name, n_tasks in parts:
        rows[regime] += bench(methods=name, tasks=n_tasks, regimes=regime, progress=True).rows
        write_atomically(out / "results.json", rows_to_json([*chain(*rows.values())]))
    print_table(
        *result_table(rows["balanced"]),
        title="mini-ImageNet test classes, ResNet-18 features: accuracy in %, 95% interval",
    )
    print_table(
        *result_table(rows[_IMBALANCED]),
        title="The same with imbalanced classes among the queries:",
    )


def _draw_convergence(figure: Path) -> None:
    stdout().print("Recording some solves step by step for the figure ...")
    table = read_features(default_features_path())
    curves = [
        convergence_curve(table, METHODS[name], TaskSpec(), n_tasks=_CURVE_TASKS).summary()
        for name in _TASKS
    ]
    title = f"5-way 1-shot, mini-ImageNet test classes: mean and 95% band of {_CURVE_TASKS} tasks"
    plot_convergence(curves, [figure], title)
    stdout().print(f"Accuracy and mutual information against time: {figure}\n")


def _label_digits(out: Path) -> None:
    """Write scikit-learn's digits as PNG files, label them, and compare with the truth."""
    truth = _write_digits(out)
    results = {name: _label(out, name) for name in ("prototype", "tim-auto")}
    rows = []
    for name, result in results.items():
        correct = [image.label == truth[image.file.name] for image in result.images]
        rows.append([name, f"{100 * np.mean(correct):.1f}"])
    print_table(
        ["method", "correct (%)"],
        rows,
        f"{len(truth)} images of handwritten digits, labelled from {_EXAMPLES} examples of each "
        "with a network that was trained on photographs only",
    )
    result = results["tim-auto"]
    for sentence in result.warnings:
        complain("Warning", sentence)
    stdout().print(
        f"Labels and confidences: {result.labels_path}\nOpen in a browser: {result.report_path}",
        soft_wrap=True,
    )


def _label(out: Path, method: str) -> LabelResult:
    return labelling.label(
        out / "examples",
        out / "photos",
        out / f"run-{method}",
        method=method,
        cache=out / "features",
        force=True,
        progress=True,
    )


def _write_digits(out: Path) -> dict[str, str]:
    """Write examples in class folders and photos in one folder; return the truth by file name."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    seen = dict.fromkeys(range(10), 0)
    truth = {}
    for number in order:
        label = int(digits.target[number])
        seen[label] += 1
        if seen[label] > _EXAMPLES + _PHOTOS:
            continue
        pixels = (255 - digits.images[number] * 255 / 16).astype(np.uint8)
        image = Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
        is_example = seen[label] <= _EXAMPLES
        folder = out / "examples" / str(label) if is_example else out / "photos"
        make_folder(folder)
        path = folder / f"digit-{number:04d}.png"
        image.save(path)
        if not is_example:
            truth[path.name] = str(label)
    with (out / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("name", "digit"), *sorted(truth.items())])
    return truth
