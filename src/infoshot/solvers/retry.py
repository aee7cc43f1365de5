"""Solve tasks for a person: those that diverge are solved again with smaller steps.

``solve`` gives what the method as published gives, and its status says which tasks diverged (see
``watch.py``). Where labels are used and not measured, a diverged task is solved a second time by
``Solver.with_smaller_steps``, and its note says so.
"""

import warnings
from typing import Any

from infoshot.core.errors import DivergedWarning
from infoshot.core.types import Solution, Status, TaskBatch
from infoshot.solvers.join import replace_tasks
from infoshot.solvers.loop import solve
from infoshot.solvers.solver import Solver
from infoshot.solvers.watch import describe_remedy


def solve_with_retry(
    solver: Solver[Any],
    tasks: TaskBatch,
    *,
    n_threads: int | None = None,
    validate: bool = True,
    quiet: bool = False,
) -> Solution:
    """Solve the tasks, and those that diverge a second time, with smaller steps.

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
    solution = solve(solver, tasks, n_threads=n_threads, validate=validate, quiet=True)
    diverged = solution.status == Status.DIVERGED
    smaller = solver.with_smaller_steps()
    if diverged.any() and smaller is not None:
        some = tasks[diverged.to(tasks.z_sup.device)]
        again = solve(smaller, some, n_threads=n_threads, validate=False, quiet=True)
        sentence = (
            "The first solve diverged (its objective ended higher than it was on the way), so the "
            f"task was solved again with smaller steps: {describe_remedy(solver)}."
        )
        solution = replace_tasks(solution, diverged, again, sentence)
    n_left = int((solution.status == Status.DIVERGED).sum())
    if n_left and not quiet:
        warnings.warn(
            f"{n_left} of {len(diverged)} tasks diverged"
            f"{'' if smaller is None else ', also with smaller steps'}: their objective ended "
            "higher than it was on the way, so their labels may be worse than those of class "
            "means; change the settings of the method, or use tim-auto.",
            DivergedWarning,
            stacklevel=2,
        )
    return solution
