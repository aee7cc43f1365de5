"""Figures; a method has the same colour in all of them (Okabe and Ito, for every eye)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.benchmark.convergence import Curve
from infoshot.metrics import mean_interval

_COLOURS = {"prototype": "#555555", "tim-adm": "#0072B2", "tim-gd": "#D55E00"}


def plot_convergence(curves: Sequence[Curve], path: Path, title: str) -> None:
    """Accuracy and mutual information against time per task, mean and 95 % band."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for curve in curves:
        _draw(left, curve, 100 * curve.accuracy)
        _draw(right, curve, curve.mutual_information)
    left.set_ylabel("accuracy on queries (%)")
    right.set_ylabel("mutual information (nats)")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("time per task on one core, set-up included (ms)")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=150)


def _draw(axes: Any, curve: Curve, values: Tensor) -> None:  # noqa: ANN401 - matplotlib's Axes
    """One curve; a method without steps is a dashed line across."""
    colour = _COLOURS.get(curve.method)
    pairs = [mean_interval(column) for column in values.unbind(-1)]
    mean = [pair[0] for pair in pairs]
    if len(mean) == 1:
        axes.axhline(mean[0], color=colour, linestyle="--", label=curve.method)
        return
    milliseconds = (1000 * curve.seconds).tolist()
    axes.plot(milliseconds, mean, color=colour, label=curve.method)
    low = [middle - half for middle, half in pairs]
    high = [middle + half for middle, half in pairs]
    axes.fill_between(milliseconds, low, high, color=colour, alpha=0.2, linewidth=0)
