"""What the paper finds, checked on the numbers that were run.

A finding is one or more claims that a mean is above another by a margin. Both are compared on the
same tasks, and the 95 % interval of the mean difference decides: all of it above the margin holds,
all of it below does not, anything else is undecided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from infoshot.benchmark import with_interval
from infoshot.metrics import mean_interval
from infoshot.reproduction.experiments import FULL_LOSS, NOT_LINEARISED, WHOLE_NETWORK

HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "does not hold", "undecided", "not run"

# Accuracy of every task, by method, parameters, loss and shots.
Accuracies = Mapping[tuple[str, str, str, int], Tensor]
# The first is above the second by more than so many points.
Claim = tuple[int, int, float]


@dataclass(frozen=True)
class Ordering:
    """A statement, what became of it here, and the numbers behind that."""

    statement: str
    verdict: str
    numbers: str


def orderings(accuracies: Accuracies, times: Sequence[Mapping[str, Any]]) -> list[Ordering]:
    """Every statement of the paper about its own method."""
    found = []
    for method in ("TIM-ADM", "TIM-GD"):
        for shots in (1, 5):
            rivals = ("SimpleShot", "LaplacianShot")
            values = [accuracies.get((name, "", "", shots)) for name in (method, *rivals)]
            statement = f"{method} is above {' and '.join(rivals)}, {shots}-shot"
            found.append(_judged(statement, values, [(0, 1, 0), (0, 2, 0)]))
        order = (FULL_LOSS, "CE-H(Y)", "CE", "CE+H(Y|X)")
        values = [accuracies.get((method, "W", loss, 1)) for loss in order]
        statement = f"{method} over W, 1-shot: {' > '.join(order)}"
        found.append(_judged(statement, values, [(0, 1, 0), (1, 2, 0), (2, 3, 0)]))
        statement = (
            f"{method} over W, 1-shot: without the marginal entropy accuracy collapses (ten points "
            "or more below CE)"
        )
        found.append(_judged(statement, values[2:], [(0, 1, 10)]))
    for shots in (1, 5):
        both = [accuracies.get((name, "W", FULL_LOSS, shots)) for name in ("TIM-ADM", "TIM-GD")]
        statement = f"TIM-ADM and TIM-GD are within 1 point of each other, {shots}-shot"
        found.append(_judged(statement, both, [(0, 1, -1), (1, 0, -1)]))
    for shots in (1, 5):
        losses = (FULL_LOSS, NOT_LINEARISED)
        both = [accuracies.get(("TIM-ADM", "W", loss, shots)) for loss in losses]
        statement = f"TIM-ADM loses without its linearised term, {shots}-shot"
        found.append(_judged(statement, both, [(0, 1, 0)]))
    for shots in (1, 5):
        both = [accuracies.get(("TIM-GD", over, FULL_LOSS, shots)) for over in ("W", WHOLE_NETWORK)]
        statement = f"Fine-tuning the whole network does not beat W alone, {shots}-shot"
        found.append(_judged(statement, both, [(0, 1, 0)]))
    return [*found, _speed(times)]


def _judged(
    statement: str, accuracies: Sequence[Tensor | None], claims: Sequence[Claim]
) -> Ordering:
    known = [tasks for tasks in accuracies if tasks is not None]
    if len(known) < len(accuracies):
        return Ordering(statement, NOT_RUN, "")
    n_tasks = min(len(tasks) for tasks in known)
    same = [100 * tasks[:n_tasks].double() for tasks in known]
    intervals = [mean_interval(same[a] - same[b]) for a, b, _ in claims]
    verdict = UNDECIDED
    margins = [margin for _, _, margin in claims]
    if all(mean - half > margin for (mean, half), margin in zip(intervals, margins, strict=True)):
        verdict = HOLDS
    elif any(mean + half < margin for (mean, half), margin in zip(intervals, margins, strict=True)):
        verdict = FAILS
    means = ", ".join(f"{float(tasks.mean()):.2f}" for tasks in same)
    shown = intervals[:1] if len(same) == 2 else intervals
    differences = ", ".join(with_interval(*interval) for interval in shown)
    tasks = "1 task" if n_tasks == 1 else f"{n_tasks:,} tasks"
    return Ordering(statement, verdict, f"{means} ({tasks}; difference {differences})")


def _speed(times: Sequence[Mapping[str, Any]]) -> Ordering:
    statement = "TIM-ADM is at least 10 times faster than TIM-GD, a task alone"
    by_method = {entry["method"]: entry for entry in times}
    if not {"TIM-ADM", "TIM-GD"} <= set(by_method):
        return Ordering(statement, NOT_RUN, "")
    alone, batched = (
        by_method["TIM-GD"][key] / by_method["TIM-ADM"][key] for key in ("alone_s", "batched_s")
    )
    verdict = HOLDS if alone >= 10 else FAILS
    return Ordering(statement, verdict, f"{alone:.1f} times; in a batch {batched:.1f}")


def counted(found: Sequence[Ordering]) -> str:
    """How many findings came out how, in a sentence."""
    counts = {name: sum(item.verdict == name for item in found) for name in (HOLDS, FAILS)}
    undecided, run = sum(item.verdict == UNDECIDED for item in found), len(found)
    run -= sum(item.verdict == NOT_RUN for item in found)
    if not run:
        return "None of the paper's findings was run."
    return (
        f"Of {run} findings of the paper that were run, {counts[HOLDS]} hold on these features, "
        f"{counts[FAILS]} do not, and {undecided} cannot be decided by as many tasks."
    )
