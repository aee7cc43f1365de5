"""Figures; a method has the same colour in all of them (Okabe and Ito's colour-blind safe set)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.benchmark.convergence import CurveSummary
from infoshot.core.types import ResultRow

_COLOURS = {
    "prototype": "#555555",
    "tim-adm": "#0072B2",
    "tim-gd": "#D55E00",
    "tim-auto": "#009E73",
    "tim-gd {phi+W}": "#CC79A7",
}
_OTHERS = "#999999"
_KINDS = {False: ("inductive", "o", "#0072B2"), True: ("transductive", "s", "#D55E00")}


@dataclass(frozen=True)
class Mark:
    """An accuracy in percent with half of its interval, and the published one if there is one."""

    label: str
    transductive: bool
    mean: float
    ci95: float
    published: float | None = None


def plot_convergence(curves: Sequence[CurveSummary], paths: Sequence[Path], title: str) -> None:
    """Plot accuracy and mutual information against time per task, mean and 95 % band.

    There is a line of panels for tasks that are solved alone, and one for many tasks in a batch,
    each with the curves that have such times.
    """
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    lines = {
        "one task at a time": [(curve, curve.milliseconds_alone) for curve in curves],
        "many tasks in a batch": [(curve, curve.milliseconds_batched) for curve in curves],
    }
    lines = {name: drawn for name, drawn in lines.items() if any(times for _, times in drawn)}
    figure = Figure(figsize=(10, 0.8 + 3.4 * len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), 2, sharey="col", squeeze=False)
    for (left, right), (name, drawn) in zip(panels, lines.items(), strict=True):
        for curve, times in drawn:
            if times is not None:
                _draw(left, curve.method, times, curve.accuracy)
                _draw(right, curve.method, times, curve.mutual_information)
        without = ", ".join(curve.method for curve, times in drawn if times is None)
        title_of_line = f"{name} (not possible for {without})" if without else name
        left.set_ylabel("accuracy on queries (%)")
        right.set_ylabel("mutual information (nats)")
        for axes in (left, right):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set_title(title_of_line, fontsize=10)
            axes.set_xlabel("time per task, set-up included (ms)")
            axes.grid(alpha=0.3)
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    figure.suptitle(title)
    _save(figure, paths, dpi=150)


def plot_systems(panels: Sequence[tuple[str, Sequence[Mark]]], paths: Sequence[Path]) -> None:
    """Plot accuracies as filled marks and published ones as hollow marks, best first.

    Panels with titles are drawn two in a line. Inductive methods are circles, transductive ones
    squares.
    """
    from matplotlib.figure import Figure

    lines = [panels[i : i + 2] for i in range(0, len(panels), 2)]
    heights = [max(len(marks) for _, marks in line) for line in lines]
    size = (12, 1.2 + sum(0.8 + 0.19 * height for height in heights))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(lines), 2, squeeze=False, height_ratios=[4 + n for n in heights])
    for line, axes_of_line in zip(lines, grid, strict=True):
        for (title, marks), axes in zip(line, axes_of_line, strict=False):
            _draw_marks(axes, title, sorted(marks, key=lambda mark: mark.mean))
        for axes in axes_of_line[len(line) :]:
            axes.remove()
    figure.legend(
        handles=_mark_handles(), loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    _save(figure, paths, dpi=100)


def _draw_marks(axes: Any, title: str, marks: Sequence[Mark]) -> None:  # noqa: ANN401
    for height, mark in enumerate(marks):
        _, shape, colour = _KINDS[mark.transductive]
        if mark.published is not None:
            axes.plot(
                [mark.mean, mark.published], [height] * 2, color="#cccccc", linewidth=0.8, zorder=1
            )
            axes.plot(
                mark.published, height, shape, markerfacecolor="none", color=colour, markersize=5
            )
        width = None if math.isnan(mark.ci95) else mark.ci95
        axes.errorbar(mark.mean, height, xerr=width, fmt=shape, color=colour, markersize=5)
    axes.set_yticks(range(len(marks)), [mark.label for mark in marks], fontsize=8)
    axes.set_ylim(-0.7, len(marks) - 0.3)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("accuracy (%)", fontsize=9)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)


def _mark_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D(
            [],
            [],
            linestyle="",
            marker=shape,
            color=colour,
            markersize=6,
            markerfacecolor=colour if here else "none",
            label=f"{name}, {'measured here' if here else 'published'}",
        )
        for here in (True, False)
        for name, shape, colour in _KINDS.values()
    ]


def _save(figure: Any, paths: Sequence[Path], dpi: int) -> None:  # noqa: ANN401
    """Write a figure; equal content gives equal files."""
    from matplotlib import rc_context

    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with rc_context({"svg.hashsalt": "infoshot"}):
            figure.savefig(path, dpi=dpi, metadata=metadata)


def plot_time(rows: Sequence[ResultRow], milliseconds: Mapping[str, float], path: Path) -> None:
    """Plot accuracy against time per task, a panel per regime and a point per method."""
    from matplotlib.figure import Figure

    regimes = list(dict.fromkeys(row.regime for row in rows))
    figure = Figure(figsize=(6.5 * len(regimes), 5.5), layout="constrained")
    panels = figure.subplots(1, len(regimes), squeeze=False)[0]
    for axes, regime in zip(panels, regimes, strict=True):
        of_panel = sorted((row for row in rows if row.regime == regime), key=lambda row: row.mean)
        for row in of_panel:
            x, colour = milliseconds[row.method], _COLOURS.get(row.method, _OTHERS)
            axes.plot(x, row.mean, "o", color=colour)
        for row, height in zip(of_panel, _label_heights(of_panel, milliseconds), strict=True):
            axes.annotate(
                row.method,
                (milliseconds[row.method], row.mean),
                (milliseconds[row.method] * 1.25, height),
                fontsize=8,
                va="center",
                color=_COLOURS.get(row.method, "#444444"),
                arrowprops={"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.6},
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.18)
        axes.set_title(f"{regime}, {of_panel[0].shots}-shot")
        axes.set_xlabel("time per balanced task with drawing and scoring, one CPU core (ms)")
        axes.set_ylabel("accuracy (%)")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def _label_heights(rows: Sequence[ResultRow], milliseconds: Mapping[str, float]) -> list[float]:
    """Heights of the labels, placed from the lowest point upwards so that none overlap."""
    line = (rows[-1].mean - rows[0].mean) / 30
    places = [math.log10(milliseconds[row.method]) for row in rows]
    # Obstacles: left, right and height of all points and of the labels placed so far.
    points = [(x - 0.03, x + 0.03, row.mean) for x, row in zip(places, rows, strict=True)]
    taken: list[tuple[float, float, float]] = []
    for x, row in zip(places, rows, strict=True):
        left, right, height = x + 0.08, x + 0.1 + 0.028 * len(row.method), row.mean
        for other_left, other_right, other in sorted(points + taken, key=lambda item: item[2]):
            if left < other_right and other_left < right and abs(height - other) < line:
                height = other + line
        taken.append((left, right, height))
    return [height for _, _, height in taken]


def plot_regimes(rows: Sequence[ResultRow], path: Path) -> None:
    """Plot the accuracy of every method in every regime, coloured by the gain over prototypes."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(row.method for row in rows))
    regimes = list(dict.fromkeys(row.regime for row in rows))
    shots = sorted({row.shots for row in rows})
    mean = {(row.method, row.regime, row.shots): row.mean for row in rows}
    size = (1 + 0.95 * len(regimes) * len(shots), 1.2 + 0.33 * len(methods))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(shots), squeeze=False, sharey=True)[0]
    for axes, shot in zip(panels, shots, strict=True):
        gains = [
            [mean[name, regime, shot] - mean["prototype", regime, shot] for regime in regimes]
            for name in methods
        ]
        image = axes.imshow(gains, cmap="RdBu", vmin=-20, vmax=20, aspect="auto")
        for i, name in enumerate(methods):
            for j, regime in enumerate(regimes):
                shade = "white" if abs(gains[i][j]) > 14 else "black"
                text = f"{mean[name, regime, shot]:.1f}"
                axes.text(j, i, text, ha="center", va="center", fontsize=8, color=shade)
        axes.set_xticks(range(len(regimes)), regimes, rotation=35, ha="right", fontsize=8)
        axes.set_yticks(range(len(methods)), methods, fontsize=8)
        axes.set_title(f"{shot}-shot accuracy (%)", fontsize=10)
    bar = figure.colorbar(image, ax=panels, extend="both", shrink=0.6, pad=0.01)
    bar.set_label("gain over prototypes (points)", fontsize=8)
    figure.savefig(path, dpi=130)


def _draw(
    axes: Any,  # noqa: ANN401 - matplotlib's Axes
    method: str,
    milliseconds: Sequence[float],
    values: Sequence[tuple[float, float]],
) -> None:
    """Draw one curve; a method without steps is a dashed horizontal line."""
    colour = _COLOURS.get(method)
    mean = [value for value, _ in values]
    if len(mean) == 1:
        axes.axhline(mean[0], color=colour, linestyle="--", label=method)
        return
    axes.plot(milliseconds, mean, color=colour, label=method)
    low, high = ([middle + sign * half for middle, half in values] for sign in (-1, 1))
    axes.fill_between(milliseconds, low, high, color=colour, alpha=0.2, linewidth=0)
