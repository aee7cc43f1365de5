"""Solve tasks for a person: those that diverge are solved again with smaller steps.

``solve`` gives what the method as published gives, and its status says which tasks diverged (see
``watch.py``). Where labels are used and not measured, a diverged task is solved again by
``Solver.with_smaller_steps``, if necessary twice, and its note says so.
"""

import warnings
from functools import partial
from typing import Any

from infoshot.core.errors import DivergedWarning
from infoshot.core.types import Solution, Status, TaskBatch
from infoshot.solvers.join import replace_tasks
from infoshot.solvers.loop import solve
from infoshot.solvers.solver import Solver
from infoshot.solvers.watch import describe_changes

_MOST_RETRIES = 2  # with steps of a quarter, then an eighth


def solve_with_retry(
    solver: Solver[Any],
    tasks: TaskBatch,
    *,
    n_threads: int | None = None,
    validate: bool = True,
    quiet: bool = False,
) -> Solution:
    """Solve the tasks, and those that diverge again, with smaller steps.

    Warns if a task diverges with smaller steps too, or its solver has none. The arguments are those
    of ``solve``.

    Examples
    --------
    >>> from infoshot import TimAdm
    >>> from infoshot.tasks import gaussian_tasks
    >>> tasks, _ = gaussian_tasks(2, n_way=3)
    >>> solve_with_retry(TimAdm(), tasks)
    Solution(2 tasks, 45 queries, 3 classes: 2 ran all steps)
    """
    run = partial(solve, n_threads=n_threads, quiet=True)
    solution = run(solver, tasks, validate=validate)
    smaller = solver
    for _ in range(_MOST_RETRIES):
        diverged, next_one = solution.status == Status.DIVERGED, smaller.with_smaller_steps()
        if next_one is None or not diverged.any():
            break
        smaller = next_one
        again = run(smaller, tasks[diverged.to(tasks.z_sup.device)], validate=False)
        solution = replace_tasks(solution, diverged, again, _note(solver, smaller))
    if not quiet:
        _warn(solution, retried=smaller is not solver)
    return solution


def _note(solver: Solver[Any], smaller: Solver[Any]) -> str:
    return (
        "The first solve diverged (its objective ended higher than it was on the way), so the task "
        f"was solved again with smaller steps: {describe_changes(solver, smaller)}."
    )


def _warn(solution: Solution, *, retried: bool) -> None:
    n_left = int((solution.status == Status.DIVERGED).sum())
    if n_left:
        warnings.warn(
            f"{n_left} of {len(solution.status)} tasks diverged"
            f"{', also with smaller steps' if retried else ''}: their objective ended higher than "
            "it was on the way, so their labels may be worse than those of class means; change the "
            "settings of the method, or use tim-auto.",
            DivergedWarning,
            stacklevel=3,
        )
