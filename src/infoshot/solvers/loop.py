"""``solve``, the only loop over steps.

It splits a batch into chunks that fit into the cache, runs them on all cores, counts steps, stops
tasks that have converged, and records how each task ended.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError, NonFiniteWarning, ShapeError
from infoshot.core.parallel import chunk_ranges, map_chunks
from infoshot.core.types import Solution, Status, TaskBatch
from infoshot.solvers.join import join, join_in_order
from infoshot.solvers.sizes import check_memory, tasks_per_chunk
from infoshot.solvers.solver import Solver, StateT
from infoshot.solvers.trace import StepEvent, StepHook, TraceRecorder


def solve(
    solver: Solver[Any],
    tasks: TaskBatch,
    *,
    record_trace: bool = False,
    on_step: StepHook | None = None,
    n_threads: int | None = None,
    chunk_size: int | None = None,
    validate: bool = True,
) -> Solution:
    """Classify the queries of every task in the batch.

    Parameters
    ----------
    solver
        The method, e.g. ``TimAdm()``.
    tasks
        Support, labels and queries; tensors (any device, any floating dtype) or NumPy arrays.
        Float16 and bfloat16 are solved in float32.
    record_trace
        Keep the terms of the objective and the time of every step in ``Solution.trace``.
    on_step
        Called with a ``StepEvent`` at the start and after every step; its own time is not counted.
    n_threads
        Threads that solve chunks of tasks, one core each. ``None``: as many as PyTorch uses on a
        CPU, one on other devices. Traces and hooks use one thread. Results do not depend on it,
        except for the rounding of a single chunk whose matrix products use the threads (none of
        tim-adm and tim-auto with many queries, which share blocks of queries instead).
    chunk_size
        Tasks solved together. ``None``: as many as fit into the cache.
    validate
        Check the tasks first; ``False`` saves time in loops over data that was checked before.

    Returns
    -------
    Probabilities, class weights, outlier scores and the status of every task.

    Raises
    ------
    InvalidArgumentError, ShapeError
        If the tasks or the solver's hyperparameters are not valid, or a chunk of tasks needs more
        memory than the machine has.

    Examples
    --------
    >>> from infoshot import Prototype, TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(Prototype(), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """
    if not isinstance(solver, Solver):
        raise InvalidArgumentError(f"solver must be a Solver, such as TimAdm(); got {solver!r}.")
    if validate:
        tasks = checks.check_tasks(tasks)
    solver.validate(tasks.n_way)
    recorder = TraceRecorder(len(tasks), solver.n_steps) if record_trace else None
    hooks = [hook for hook in (recorder, on_step) if hook is not None]
    if n_threads is None:
        n_threads = torch.get_num_threads() if tasks.z_sup.device.type == "cpu" else 1
    checks.at_least("n_threads", n_threads, 1, checks.MOST_THREADS)
    chunk_size = tasks_per_chunk(solver, tasks) if chunk_size is None else chunk_size
    checks.at_least("chunk_size", chunk_size, 1)
    check_memory(solver, tasks, chunk_size)
    solution = join(
        map_chunks(
            lambda chunk: _solve_chunk(solver, tasks[chunk.start : chunk.stop], chunk.start, hooks),
            chunk_ranges(len(tasks), chunk_size),
            n_threads=1 if hooks else n_threads,
            by_blocks=solver.splits_samples(tasks),
        )
    )
    _warn_if_not_finite(solution)
    if recorder is not None:
        solution = dataclasses.replace(solution, trace=recorder.trace(solution.n_steps))
    return solution


@torch.inference_mode()
def _solve_chunk(
    solver: Solver[StateT], task: TaskBatch, first_id: int, hooks: Sequence[StepHook]
) -> Solution:
    """Solve the tasks of one chunk together."""
    dtype = task.z_sup.dtype
    if dtype.itemsize < 4:
        task = dataclasses.replace(task, z_sup=task.z_sup.float(), z_qry=task.z_qry.float())
    ids = torch.arange(first_id, first_id + len(task))
    ended: list[tuple[Tensor, Solution]] = []
    state = _observe(partial(solver.init, task), solver, 0, task, ids, hooks)
    n_steps = solver.planned_steps(task)
    if not hooks and solver.tolerance is None:  # single steps need not be observed
        state = solver.advance(task, state, n_steps)
        return join_in_order(
            [(ids, _finish(solver, task, state, n_steps, Status.RAN_ALL_STEPS))], dtype
        )
    for step in range(1, n_steps + 1):
        before = state.posterior
        state = _observe(partial(solver.step, task, state), solver, step, task, ids, hooks)
        if solver.tolerance is None:
            continue
        done = _converged(solver, before, state.posterior)
        if done.any():
            part = _finish(solver, task[done], state.select(done), step, Status.CONVERGED)
            ended.append((ids[done.cpu()], part))
            task, state, ids = task[~done], state.select(~done), ids[~done.cpu()]
            if not len(ids):
                break
    if len(ids):
        part = _finish(solver, task, state, n_steps, Status.RAN_ALL_STEPS)
        ended.append((ids, part))
    return join_in_order(ended, dtype)


def _converged(solver: Solver[StateT], before: Tensor, after: Tensor) -> Tensor:
    """Mask of the tasks whose query probabilities changed by at most the tolerance."""
    if after.ndim != 3:
        raise InvalidArgumentError(
            f"{type(solver).__name__} has a tolerance, so its step must set state.posterior to the "
            f"query probabilities, shape (task, class, query); got {tuple(after.shape)}."
        )
    if before.shape != after.shape:  # the first step has nothing to compare with
        return torch.zeros(len(after), dtype=torch.bool, device=after.device)
    return (after - before).abs().amax((1, 2)) <= (solver.tolerance or 0.0)


def _observe(
    action: Callable[[], StateT],
    solver: Solver[StateT],
    step: int,
    task: TaskBatch,
    ids: Tensor,
    hooks: Sequence[StepHook],
) -> StateT:
    """Run ``action``, the start or a step; time it and call the hooks if there are any."""
    if not hooks:
        return action()
    start = _now(task.z_sup.device)
    state = action()
    event = StepEvent(step, ids, _now(task.z_sup.device) - start, solver, task, state)
    with torch.inference_mode(False):
        for hook in hooks:
            hook(event)
    return state


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _finish(
    solver: Solver[StateT], task: TaskBatch, state: StateT, steps: int, status: Status
) -> Solution:
    """Make the solution from the last state."""
    log_p = solver.log_posterior(task, state)
    _check_shape(solver, "log_posterior", log_p, (len(task), task.n_qry, task.n_way))
    probabilities = log_p.exp()
    prototypes = solver.prototypes(task, state)
    _check_shape(solver, "prototypes", prototypes, (len(task), task.n_way, task.dim))
    outlier_scores = solver.outlier_scores(task, state)
    if outlier_scores is None:
        outlier_scores = -log_p.amax(-1).expm1()
    finite = probabilities.isfinite().all(-1).all(-1) & prototypes.isfinite().all(-1).all(-1)
    return Solution(
        probabilities,
        prototypes,
        status=torch.where(finite.cpu(), int(status), int(Status.NON_FINITE)),
        n_steps=torch.full((len(task),), steps),
        outlier_scores=outlier_scores,
        notes=solver.notes(task, state),
    )


def _check_shape(
    solver: Solver[StateT], method: str, value: Tensor, shape: tuple[int, ...]
) -> None:
    if value.shape != shape:
        raise ShapeError(
            f"{type(solver).__name__}.{method} must return shape {shape}; got {tuple(value.shape)}."
        )


def _warn_if_not_finite(solution: Solution) -> None:
    bad = (solution.status == Status.NON_FINITE).nonzero().flatten().tolist()
    if bad:
        warnings.warn(
            f"The solutions of {len(bad)} of {len(solution.status)} tasks are not finite, the "
            f"first of task {bad[0]}: the features are so large that their squares overflow, the "
            "temperature is too high, or the method has a bug (infoshot.testing.check_solver).",
            NonFiniteWarning,
            stacklevel=3,
        )
