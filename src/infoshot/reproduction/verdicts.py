"""Verdicts on claims that one accuracy exceeds another, on one or several networks.

Two methods are compared on the same tasks and the same network. How certain the mean difference is
depends on the number of networks:

- one: the 95% interval over tasks;
- two: each network is judged by its own interval over tasks, and both verdicts must agree;
- three or more: a t interval over the networks. Because all networks see the same tasks, it does
  not contain the uncertainty of the tasks, so the interval over tasks is added in quadrature.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.benchmark import with_interval
from infoshot.metrics import mean_interval
from infoshot.reproduction.paper import Setting

HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "does not hold", "undecided", "not run"
METHOD_NOTE = (
    "Methods are compared on the same tasks and the same network, and the 95% interval of the mean "
    "difference decides. With three networks or more it is a t interval over the networks, with "
    "the interval over tasks added in quadrature; two networks must agree, each by its interval "
    "over tasks."
)
FAMILY_NOTE = (
    "Systems have different networks and the same tasks: the 95% interval of the mean difference "
    "over tasks decides, and where a system has several networks all pairs must agree. A statement "
    "about several systems holds if it holds for each of them. Positive differences agree with the "
    "statement."
)
Accuracies = Mapping[Setting, Tensor]
"""Accuracies between 0 and 1 of the tasks of one network."""
# 97.5% quantiles of Student's t for 2 to 9 degrees of freedom; 9 serve for more.
_T_QUANTILES = (4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@dataclass(frozen=True)
class Claim:
    """One mean accuracy is above another by more than ``margin`` points."""

    above: Setting
    below: Setting
    margin: float = 0.0


def judge(networks: Sequence[Accuracies], claims: Sequence[Claim]) -> tuple[str, str]:
    """Return the verdict on a statement of several claims, and the numbers as text.

    It ``holds`` if every interval lies above its margin, and ``does not hold`` if one lies below.
    Otherwise it is ``undecided``. Networks without some of the accuracies are left out.
    """
    settings = list(dict.fromkeys(s for claim in claims for s in (claim.above, claim.below)))
    complete = [tasks for tasks in networks if all(s in tasks for s in settings)]
    if not complete:
        return NOT_RUN, ""
    n_tasks = min(len(tasks[s]) for tasks in complete for s in settings)
    points = [{s: 100 * tasks[s][:n_tasks].double() for s in settings} for tasks in complete]
    differences = [
        [tasks[claim.above] - tasks[claim.below] for tasks in points] for claim in claims
    ]
    margins = [claim.margin for claim in claims]
    if len(points) == 2:
        intervals = [[mean_interval(of_network) for of_network in claim] for claim in differences]
        verdicts = {_verdict(of_network, margins) for of_network in zip(*intervals, strict=True)}
        verdict = verdicts.pop() if len(verdicts) == 1 else UNDECIDED
        shown = [" and ".join(with_interval(*one) for one in both) for both in intervals]
    else:
        combined = [difference_interval(claim) for claim in differences]
        verdict = _verdict(combined, margins)
        shown = [with_interval(*interval) for interval in combined]
    means = [statistics.fmean(float(tasks[s].mean()) for tasks in points) for s in settings]
    return verdict, _describe(means, shown, n_tasks, (len(points), len(networks)))


def difference_interval(differences: Sequence[Tensor]) -> tuple[float, float]:
    """Return the mean difference and half of its 95% interval, for one network or three and more.

    Parameters
    ----------
    differences
        The differences of the tasks for each network; task i is the same for all networks.

    Examples
    --------
    >>> networks = [torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0]), torch.tensor([3.0, 5.0])]
    >>> mean, half_width = difference_interval(networks)
    >>> f"{mean:.1f} ± {half_width:.2f}"
    '3.0 ± 3.16'
    """
    stacked = torch.stack([tasks.double() for tasks in differences])
    mean, over_tasks = mean_interval(stacked.mean(0))
    n_networks = len(stacked)
    if n_networks == 1:
        return mean, over_tasks
    quantile = _T_QUANTILES[min(n_networks - 3, len(_T_QUANTILES) - 1)]
    over_networks = quantile * float(stacked.mean(1).std()) / math.sqrt(n_networks)
    return mean, math.hypot(over_networks, over_tasks)


def _verdict(intervals: Sequence[tuple[float, float]], margins: Sequence[float]) -> str:
    pairs = list(zip(intervals, margins, strict=True))
    if all(mean - half > margin for (mean, half), margin in pairs):
        return HOLDS
    if any(mean + half < margin for (mean, half), margin in pairs):
        return FAILS
    return UNDECIDED


def _describe(
    means: Sequence[float], differences: Sequence[str], n_tasks: int, n_networks: tuple[int, int]
) -> str:
    """Return accuracies and differences as text, with how many networks of how many have them."""
    shown = differences[:1] if len(means) == 2 else differences
    tasks = "1 task" if n_tasks == 1 else f"{n_tasks:,} tasks"
    judged, given = n_networks
    if given > 1:
        tasks = f"{judged if judged == given else f'{judged} of {given}'} networks, {tasks}"
    accuracies = ", ".join(f"{mean:.2f}" for mean in means)
    return f"{accuracies} ({tasks}; difference {', '.join(shown)})"
