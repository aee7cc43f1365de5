"""How tasks end: the solution of a part of a chunk, and warnings about tasks that failed."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from infoshot.core.errors import DivergedWarning, NonFiniteWarning, ShapeError
from infoshot.core.types import Solution, Status, TaskBatch
from infoshot.solvers.solver import Solver, StateT
from infoshot.solvers.watch import Watch, describe_remedy, diverged_notes


def finish(
    solver: Solver[StateT],
    task: TaskBatch,
    state: StateT,
    steps: int,
    status: Status,
    watch: Watch | None,
) -> Solution:
    """Make the solution from the last state."""
    log_p = solver.log_posterior(task, state)
    _check_shape(solver, "log_posterior", log_p, (len(task), task.n_qry, task.n_way))
    probabilities = log_p.exp()
    prototypes = solver.prototypes(task, state)
    _check_shape(solver, "prototypes", prototypes, (len(task), task.n_way, task.dim))
    outlier_scores = solver.outlier_scores(task, state)
    if outlier_scores is None:
        outlier_scores = log_p.amax(-1).expm1_().neg_()
    ended = torch.full((len(task),), int(status))
    finite = _finite_tasks(probabilities, prototypes)
    if finite is not None:
        ended[~finite] = int(Status.NON_FINITE)
    notes = solver.notes(task, state)
    if watch is not None:
        watch.look(solver, task, state)
        diverged = watch.diverged().cpu()
        if finite is not None:
            diverged &= finite
        ended[diverged] = int(Status.DIVERGED)
        notes = diverged_notes(solver, diverged, notes)
    return Solution(
        probabilities,
        prototypes,
        status=ended,
        n_steps=torch.full((len(task),), steps),
        outlier_scores=outlier_scores,
        temperatures=solver.reporting_temperature(task, state),
        notes=notes,
    )


def _check_shape(
    solver: Solver[StateT], method: str, value: Tensor, shape: tuple[int, ...]
) -> None:
    if value.shape != shape:
        raise ShapeError(
            f"{type(solver).__name__}.{method} must return shape {shape}; got {tuple(value.shape)}."
        )


def _finite_tasks(probabilities: Tensor, prototypes: Tensor) -> Tensor | None:
    """Mask, on the CPU, of the tasks whose probabilities and prototypes are finite; None: all."""
    # A sum is one fast pass and not finite if any value is not; only then look closer.
    if math.isfinite((probabilities.sum() + prototypes.sum()).item()):
        return None
    finite = probabilities.isfinite().all(-1).all(-1) & prototypes.isfinite().all(-1).all(-1)
    return finite.cpu()


def any_failed(solution: Solution) -> bool:
    """Whether there is anything to warn about."""
    return int(solution.status.max()) > Status.CONVERGED


def warn_if_not_finite(solution: Solution) -> None:
    """Warn the caller of ``solve`` about tasks whose solutions are not finite."""
    bad = (solution.status == Status.NON_FINITE).nonzero().flatten().tolist()
    if bad:
        warnings.warn(
            f"The solutions of {len(bad)} of {len(solution.status)} tasks are not finite, the "
            f"first of task {bad[0]}: the features are so large that their squares overflow, the "
            "temperature is too high, or the method has a bug (infoshot.testing.check_solver).",
            NonFiniteWarning,
            stacklevel=3,
        )


def warn_if_diverged(solver: Solver[Any], solution: Solution) -> None:
    """Warn the caller of ``solve`` about tasks that diverged."""
    bad = (solution.status == Status.DIVERGED).nonzero().flatten().tolist()
    if bad:
        remedy = describe_remedy(solver)
        warnings.warn(
            f"{len(bad)} of {len(solution.status)} tasks diverged, the first is task {bad[0]}: "
            "their objective ended higher than it was on the way, so their labels may be worse "
            "than those of class means; use smaller steps"
            f"{f' ({remedy})' if remedy else ''}, or tim-auto.",
            DivergedWarning,
            stacklevel=3,
        )
