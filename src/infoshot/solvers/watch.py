r"""Notice tasks whose steps overshoot: their objective ends higher than it was on the way.

``solve`` evaluates the objective L of a solver at the start, every 50 steps and at the end. A task
has *diverged* if it ends having lost more than a tenth of what it had gained,

.. math:: L_{end} - \min_j L_j > \max\left(0.1 \, (L_0 - \min_j L_j), \; 0.01\right).

The rule does not depend on the scale of the objective, except for its second part, which ignores
rounding. It was chosen on validation classes of mini-ImageNet and CUB. ``docs/math.md`` says how
often tasks diverge, and ``scripts/divergence.py`` compares it with other rules.

Cost: four evaluations for 150 steps, each a little cheaper than a step.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.solver import Solver, StateT

EVERY = 50  # steps between two evaluations
_MOST_LOST = 0.1  # of the decrease of the objective
_LEAST_RISE = 0.01


@dataclass(eq=False)
class Watch:
    """The objective of each task at the start, its lowest value so far, and the latest one."""

    start: Tensor  # [task]
    lowest: Tensor
    latest: Tensor

    @classmethod
    def begin(cls, solver: Solver[StateT], task: TaskBatch, state: StateT) -> Self | None:
        """Evaluate the objective at the start; ``None`` if the solver has none."""
        value = solver.objective(task, state)
        return None if value is None else cls(value, value, value)

    def look(self, solver: Solver[StateT], task: TaskBatch, state: StateT) -> None:
        """Evaluate the objective after some steps."""
        value = solver.objective(task, state)
        assert value is not None, "a solver always has an objective, or never"
        self.lowest, self.latest = torch.minimum(self.lowest, value), value

    def select(self, keep: Tensor) -> "Watch":
        """Return the watch over some of the tasks, by mask."""
        return Watch(self.start[keep], self.lowest[keep], self.latest[keep])

    def diverged(self) -> Tensor:
        """Mask of the tasks that have lost too much of what they had gained."""
        allowed = (self.start - self.lowest).mul_(_MOST_LOST).clamp_(min=_LEAST_RISE)
        return self.latest - self.lowest > allowed


def describe_remedy(solver: Solver[Any]) -> str:
    """Name the settings with smaller steps as text; empty if the solver has none."""
    smaller = solver.with_smaller_steps()
    return "" if smaller is None else describe_changes(solver, smaller)


def describe_changes(solver: Solver[Any], changed: Solver[Any]) -> str:
    """Name the settings of the second solver that differ from those of the first, as text."""
    before = solver.settings()
    return ", ".join(f"{k}={v}" for k, v in changed.settings().items() if v != before[k])


def diverged_notes(
    solver: Solver[Any], diverged: Tensor, notes: tuple[str, ...]
) -> tuple[str, ...]:
    """Add a sentence to the notes of the tasks that diverged."""
    if not diverged.any():
        return notes
    sentence = "The task diverged: its objective ended higher than it was on the way"
    remedy = describe_remedy(solver)
    sentence += f"; smaller steps avoid this ({remedy})." if remedy else "."
    return tuple(
        " ".join(filter(None, (note, sentence if bad else "")))
        for note, bad in zip(notes or ("",) * len(diverged), diverged.tolist(), strict=True)
    )
