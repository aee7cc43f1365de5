"""What the paper finds, checked on the numbers that were run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from infoshot.benchmark.tables import with_interval
from infoshot.metrics import mean_interval
from infoshot.reproduce.experiments import NOT_LINEARISED, WHOLE_NETWORK

# Accuracy of every task, by method, parameters, loss and shots.
Accuracies = Mapping[tuple[str, str, str, int], Tensor]


@dataclass(frozen=True)
class Ordering:
    """A statement, whether it holds here (``None``: not run), and the numbers behind it."""

    statement: str
    holds: bool | None
    numbers: str


def orderings(accuracies: Accuracies, times: Sequence[Mapping[str, Any]]) -> list[Ordering]:
    """Every statement of the paper about its own method, compared on the same tasks."""
    full = "CE-H(Y)+H(Y|X)"
    found = []
    for method in ("TIM-ADM", "TIM-GD"):
        order = (full, "CE-H(Y)", "CE", "CE+H(Y|X)")
        found.append(
            _compare(
                f"{method} over W, 1-shot: {' > '.join(order)}",
                [accuracies.get((method, "W", loss, 1)) for loss in order],
                lambda v: all(a > b for a, b in pairwise(v)),
            )
        )
        found.append(
            _compare(
                f"{method} over W, 1-shot: without the marginal entropy accuracy collapses (ten "
                "points or more below CE)",
                [accuracies.get((method, "W", loss, 1)) for loss in ("CE+H(Y|X)", "CE")],
                lambda v: v[0] < v[1] - 10,
            )
        )
    found += [
        _compare(
            f"TIM-ADM and TIM-GD are within 1 point of each other, {shots}-shot",
            [accuracies.get((name, "W", full, shots)) for name in ("TIM-ADM", "TIM-GD")],
            lambda v: abs(v[0] - v[1]) < 1,
        )
        for shots in (1, 5)
    ]
    found += [
        _compare(
            f"TIM-ADM loses without its linearised term, {shots}-shot",
            [accuracies.get(("TIM-ADM", "W", loss, shots)) for loss in (full, NOT_LINEARISED)],
            lambda v: v[0] > v[1],
        )
        for shots in (1, 5)
    ]
    found += [
        _compare(
            f"Fine-tuning the whole network does not beat W alone, {shots}-shot",
            [accuracies.get(("TIM-GD", over, full, shots)) for over in (WHOLE_NETWORK, "W")],
            lambda v: v[0] <= v[1],
        )
        for shots in (1, 5)
    ]
    return [*found, _speed(times)]


def _compare(
    statement: str, accuracies: Sequence[Tensor | None], test: Callable[[list[float]], bool]
) -> Ordering:
    known = [tasks for tasks in accuracies if tasks is not None]
    if len(known) < len(accuracies):
        return Ordering(statement, None, "not run")
    n_tasks = min(len(tasks) for tasks in known)
    same = [100 * tasks[:n_tasks].double() for tasks in known]
    means = [float(tasks.mean()) for tasks in same]
    numbers = ", ".join(f"{mean:.2f}" for mean in means)
    difference = ""
    if len(same) == 2:
        difference = f"; difference {with_interval(*mean_interval(same[0] - same[1]))}"
    return Ordering(statement, test(means), f"{numbers} ({n_tasks:,} tasks{difference})")


def _speed(times: Sequence[Mapping[str, Any]]) -> Ordering:
    statement = "TIM-ADM is at least 10 times faster than TIM-GD, a task alone"
    by_method = {entry["method"]: entry for entry in times}
    if not {"TIM-ADM", "TIM-GD"} <= set(by_method):
        return Ordering(statement, None, "not run")
    alone, batched = (
        by_method["TIM-GD"][key] / by_method["TIM-ADM"][key] for key in ("alone_s", "batched_s")
    )
    return Ordering(statement, alone >= 10, f"{alone:.1f} times; in a batch {batched:.1f}")
