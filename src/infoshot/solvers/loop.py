"""``solve``, the only loop over steps.

It splits a batch into chunks that fit into the cache, runs them on all cores, counts steps, stops
tasks that have converged, watches the objective, and records how each task ended.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.parallel import chunk_ranges, map_chunks
from infoshot.core.types import Solution, Status, TaskBatch
from infoshot.solvers.ending import any_failed, finish, warn_if_diverged, warn_if_not_finite
from infoshot.solvers.join import join, join_in_order
from infoshot.solvers.sizes import check_memory, tasks_per_chunk
from infoshot.solvers.solver import Solver, StateT
from infoshot.solvers.trace import StepEvent, StepHook, TraceRecorder
from infoshot.solvers.watch import EVERY, Watch


def solve(
    solver: Solver[Any],
    tasks: TaskBatch,
    *,
    record_trace: bool = False,
    on_step: StepHook | None = None,
    n_threads: int | None = None,
    chunk_size: int | None = None,
    validate: bool = True,
    quiet: bool = False,
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
    quiet
        Do not warn about tasks that diverged; their status and notes report them anyway.

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
            lambda chunk: _solve_chunk(solver, _tasks_of(tasks, chunk), chunk.start, hooks),
            chunk_ranges(len(tasks), chunk_size),
            n_threads=1 if hooks else n_threads,
            by_blocks=solver.splits_samples(tasks),
        )
    )
    if any_failed(solution):
        warn_if_not_finite(solution)
        if not quiet:
            warn_if_diverged(solver, solution)
    if recorder is not None:
        solution = dataclasses.replace(solution, trace=recorder.trace(solution.n_steps))
    return solution


def _tasks_of(tasks: TaskBatch, chunk: range) -> TaskBatch:
    """Select the tasks of a chunk."""
    return tasks if len(chunk) == len(tasks) else tasks[chunk.start : chunk.stop]


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
    watch = Watch.begin(solver, task, state) if n_steps else None
    if not hooks and solver.tolerance is None:  # single steps need not be observed
        state = _advance(solver, task, state, n_steps, watch)
        part = finish(solver, task, state, n_steps, Status.RAN_ALL_STEPS, watch)
        return join_in_order([(ids, part)], dtype)
    for step in range(1, n_steps + 1):
        before = state.posterior
        state = _observe(partial(solver.step, task, state), solver, step, task, ids, hooks)
        if watch is not None and step % EVERY == 0 and step < n_steps:
            watch.look(solver, task, state)
        if solver.tolerance is None:
            continue
        done = _converged(solver, before, state.posterior)
        if done.any():
            seen = None if watch is None else watch.select(done)
            part = finish(solver, task[done], state.select(done), step, Status.CONVERGED, seen)
            ended.append((ids[done.cpu()], part))
            task, state, ids = task[~done], state.select(~done), ids[~done.cpu()]
            watch = None if watch is None else watch.select(~done)
            if not len(ids):
                break
    if len(ids):
        part = finish(solver, task, state, n_steps, Status.RAN_ALL_STEPS, watch)
        ended.append((ids, part))
    return join_in_order(ended, dtype)


def _advance(
    solver: Solver[StateT], task: TaskBatch, state: StateT, n_steps: int, watch: Watch | None
) -> StateT:
    """Take all steps; in parts, between which the objective is evaluated, if it is watched."""
    if watch is None:
        return solver.advance(task, state, n_steps)
    for start in range(0, n_steps, EVERY):
        if start:
            watch.look(solver, task, state)
        state = solver.advance(task, state, min(EVERY, n_steps - start))
    return state


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
