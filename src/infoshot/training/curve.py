"""The learning curve as an image."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infoshot.core.atomic import write_atomically
from infoshot.training.records import EpochRecord, best_epoch

CURVE_NAME = "curve.png"


@dataclass(frozen=True)
class CurveLabels:
    """What the lines of a learning curve are."""

    title: str
    loss: str
    train: str
    val: str


def plot_curve(records: Sequence[EpochRecord], path: Path, labels: CurveLabels) -> None:
    """Plot the loss (left), and the accuracy on train images and validation tasks (right)."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = [record.epoch for record in records]
    mark = "." if len(records) == 1 else None
    left.plot(epochs, [record.loss for record in records], marker=mark, color="#555555")
    left.set_ylabel(labels.loss)
    right.plot(
        epochs,
        [record.train_accuracy for record in records],
        marker=mark,
        color="#D55E00",
        label=labels.train,
    )
    if records[-1].val_accuracy is not None:
        best = best_epoch(records)
        values = [record.val_accuracy for record in records]
        right.plot(epochs, values, color="#0072B2", label=labels.val)
        right.plot([best], [values[best - 1]], "o", color="#0072B2", label=f"best: epoch {best}")
    right.set_ylabel("accuracy (%)")
    figure.legend(loc="outside lower right", ncols=3, frameon=False)  # beside the curves
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.suptitle(labels.title)
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format="png")
    write_atomically(path, content.getvalue())
