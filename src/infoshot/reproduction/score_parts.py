"""Scores many tasks in parts, so that an interrupted cell resumes and a stored one is continued."""

import dataclasses
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from infoshot.benchmark import Protocol
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import ResultRow

Scores = tuple[ResultRow, Tensor]
"""A row, and the accuracies of its tasks between 0 and 1, shape ``(task,)``."""


def score_in_parts(
    score: Callable[[range], Tensor],
    protocol: Protocol,
    *,
    at_once: int,
    earlier: Scores | None = None,
    progress: Progress = SILENT,
) -> Iterator[tuple[Protocol, Tensor, float]]:
    """Score the tasks of a protocol, some at once.

    Parameters
    ----------
    score
        Returns the accuracies of some tasks, and counts them.
    at_once
        Tasks that an interrupted cell may have to compute again.
    earlier
        Result of the first tasks. They are not computed again, unless another kind of device
        computed them.
    progress
        Counts the earlier tasks that are kept.

    Returns
    -------
    After every part: the protocol of the tasks so far, their accuracies, and the seconds.
    """
    scores, seconds = torch.empty(0), 0.0
    if earlier is not None and _kind(earlier[0].device) == _kind(protocol.device):
        scores, seconds = earlier[1][: protocol.n_tasks], earlier[0].seconds
    progress.advance(len(scores))
    while len(scores) < protocol.n_tasks:
        n_so_far = min(len(scores) + at_once, protocol.n_tasks)
        start = time.perf_counter()
        scores = torch.cat((scores, score(range(len(scores), n_so_far)).float().cpu()))
        seconds += time.perf_counter() - start
        yield dataclasses.replace(protocol, n_tasks=n_so_far), scores, seconds


def _kind(device: str) -> str:
    return device.split(":", maxsplit=1)[0]
