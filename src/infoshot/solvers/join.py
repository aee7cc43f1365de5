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
            whole.temperatures[place],
            tuple(whole.notes[i] for i in order) if whole.notes else (),
        )
    names = ("probabilities", "prototypes", "outlier_scores", "temperatures")
    other = {
        name: value.to(dtype) for name in names if (value := getattr(whole, name)).dtype != dtype
    }
    return dataclasses.replace(whole, **other) if other else whole


def replace_tasks(whole: Solution, which: Tensor, part: Solution, note: str) -> Solution:
    """Replace the tasks of a mask by those of ``part``, and put a note before theirs."""
    place = which.to(whole.probabilities.device)
    old = whole.notes or ("",) * len(which)
    new = iter(part.notes or ("",) * len(part.status))
    return Solution(
        _put(whole.probabilities, place, part.probabilities),
        _put(whole.prototypes, place, part.prototypes),
        _put(whole.status, which, part.status),
        _put(whole.n_steps, which, part.n_steps),
        _put(whole.outlier_scores, place, part.outlier_scores),
        _put(whole.temperatures, place, part.temperatures),
        tuple(
            f"{note} {next(new)}".rstrip() if is_new else kept
            for kept, is_new in zip(old, which.tolist(), strict=True)
        ),
    )


def _put(values: Tensor, which: Tensor, new: Tensor) -> Tensor:
    """Copy of ``values`` with new ones where the mask is true."""
    values = values.clone()
    values[which] = new
    return values


def join(parts: Iterable[Solution]) -> Solution:
    """Join solutions along the task axis; their tensors are copied, also those of a single one."""
    parts = list(parts)
    return Solution(
        torch.cat([part.probabilities for part in parts]),
        torch.cat([part.prototypes for part in parts]),
        torch.cat([part.status for part in parts]),
        torch.cat([part.n_steps for part in parts]),
        torch.cat([part.outlier_scores for part in parts]),
        torch.cat([part.temperatures for part in parts]),
        _join_notes(parts),
    )


def _join_notes(parts: Sequence[Solution]) -> tuple[str, ...]:
    """A note for every task, empty where a chunk has none; ``()`` if no chunk has any."""
    if not any(part.notes for part in parts):
        return ()
    return tuple(note for part in parts for note in part.notes or ("",) * len(part.status))
