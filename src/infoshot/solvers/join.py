"""Join the solutions of parts of a batch along the task axis."""

import dataclasses
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from infoshot.core.types import Solution


def join_in_order(parts: list[tuple[Tensor, Solution]], dtype: torch.dtype) -> Solution:
    """Join the parts of a chunk that ended at different steps, in the order of their tasks."""
    whole = parts[0][1]
    if len(parts) > 1:
        whole = join(part for _, part in parts)
        order = torch.cat([ids for ids, _ in parts]).argsort()
        place = order.to(whole.probabilities.device)
        whole = Solution(
            whole.probabilities[place],
            whole.prototypes[place],
            whole.status[order],
            whole.n_steps[order],
            whole.outlier_scores[place],
            tuple(whole.notes[i] for i in order) if whole.notes else (),
        )
    return dataclasses.replace(
        whole,
        probabilities=whole.probabilities.to(dtype),
        prototypes=whole.prototypes.to(dtype),
        outlier_scores=whole.outlier_scores.to(dtype),
    )


def join(parts: Iterable[Solution]) -> Solution:
    """Join solutions along the task axis."""
    parts = list(parts)
    return Solution(
        torch.cat([part.probabilities for part in parts]),
        torch.cat([part.prototypes for part in parts]),
        torch.cat([part.status for part in parts]),
        torch.cat([part.n_steps for part in parts]),
        torch.cat([part.outlier_scores for part in parts]),
        _join_notes(parts),
    )


def _join_notes(parts: Sequence[Solution]) -> tuple[str, ...]:
    """A note for every task, empty where a chunk has none; ``()`` if no chunk has any."""
    if not any(part.notes for part in parts):
        return ()
    return tuple(note for part in parts for note in part.notes or ("",) * len(part.status))
