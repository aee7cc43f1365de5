"""The solver interface and :func:`solve`, the only loop over steps.

A *solver* is a frozen dataclass whose fields are its hyperparameters. A *state* is a private
dataclass whose tensors have the task as first axis. ``solve`` cuts a batch into chunks that stay in
cache, runs them on all cores, counts steps, stops tasks that no longer move, and says how each task
ended. Solvers never see query labels, files, clocks or progress bars.
"""

import dataclasses
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from infoshot import checks
from infoshot.errors import InvalidArgumentError, NonFiniteWarning, ShapeError
from infoshot.parallel import chunk_ranges, map_chunks
from infoshot.solvers.trace import StepEvent, StepHook, TraceRecorder
from infoshot.types import Solution, Status, TaskBatch

# What a step touches should stay in a core's share of the cache; on a GPU it should fill the chip.
# The features of a chunk are copied once, so they are bounded too.
WORKING_SET_BYTES = {"cpu": 8 * 2**20, "cuda": 2 * 2**30}
MOST_FEATURE_BYTES = {"cpu": 128 * 2**20, "cuda": 4 * 2**30}
MOST_TASKS_PER_CHUNK = {"cpu": 128, "cuda": 16384}

Rule = Callable[[str, object], None]
RULES: dict[str, Rule] = {
    "n_steps": partial(checks.at_least, least=1),
    "temperature": checks.positive,
    "learning_rate": checks.positive,
    "cross_entropy_weight": checks.not_negative,
    "marginal_entropy_weight": checks.not_negative,
    "conditional_entropy_weight": checks.not_negative,
    "prototype_step_size": partial(checks.share_or_none),
    "shrinkage": checks.not_negative,
    "class_prior": checks.prior_or_none,
    "tolerance": checks.positive_or_none,
    "linearized": partial(checks.one_of, allowed=(True, False)),
    "form": partial(checks.one_of, allowed=("auto", "gram", "feature")),
}


@dataclasses.dataclass(eq=False)
class State:
    """Where the solve of a chunk stands; every tensor field has the task as first axis.

    ``posterior`` holds the query probabilities that the last step started from, with classes as
    rows, shape ``(task, class, query)``: what is compared to tell whether a task still moves.
    """

    posterior: Tensor

    def select(self, keep: Tensor) -> Self:
        """Return the state of some of the tasks, by mask."""
        tensors = {
            field.name: value[keep]
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        return dataclasses.replace(self, **tensors)


StateT = TypeVar("StateT", bound=State)


class Solver(ABC, Generic[StateT]):
    """A method for classifying the queries of few-shot tasks.

    Concrete solvers are final frozen dataclasses; every hyperparameter is a field whose default is
    the published value and whose allowed values are in ``RULES``.
    """

    @property
    @abstractmethod
    def n_steps(self) -> int:
        """Most steps a task may take; 0 for a method without iterations."""

    @property
    @abstractmethod
    def tolerance(self) -> float | None:
        """Stop a task once no query probability moved by more than this; ``None``: never."""

    @property
    @abstractmethod
    def temperature(self) -> float:
        """Factor on the squared distance in the posterior; larger is sharper."""

    @abstractmethod
    def init(self, task: TaskBatch) -> StateT:
        """Where to start from."""

    @abstractmethod
    def step(self, task: TaskBatch, state: StateT) -> StateT:
        """One iteration for all tasks; it may write into ``state``, never into ``task``."""

    @abstractmethod
    def log_posterior(self, task: TaskBatch, state: StateT) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""

    @abstractmethod
    def prototypes(self, task: TaskBatch, state: StateT) -> Tensor:
        """Class weights, shape ``(task, class, dim)``."""

    @abstractmethod
    def loss(self, task: TaskBatch, log_p_sup: Tensor, log_p_qry: Tensor) -> Tensor:
        """Return the objective of the method, shape ``(task,)``; for traces."""

    @abstractmethod
    def working_set(self, task: TaskBatch) -> int:
        """Count the numbers that a step touches per task; decides how many tasks make a chunk."""

    def settings(self) -> dict[str, Any]:
        """Hyperparameters by name."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def with_settings(self, **changes: Any) -> Self:  # noqa: ANN401 - of any field's type
        """Return the same solver with some hyperparameters changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def validate(self, n_way: int | None = None) -> None:
        """Raise if a hyperparameter has a value that is not allowed (for this many classes)."""
        for name, rule in RULES.items():
            if name in self.__dict__:
                rule(f"{type(self).__name__}: {name}", getattr(self, name))
        prior = self.__dict__.get("class_prior")
        if prior is not None and n_way is not None and len(prior) != n_way:
            raise ShapeError(
                f"{type(self).__name__}: class_prior must hold one weight for each of the {n_way} "
                f"classes; got {len(prior)}."
            )


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
        Called with a ``StepEvent`` at the start and after every step; its time is not counted.
    n_threads
        Threads that take chunks of tasks, one core each. ``None``: as many as PyTorch uses on a
        CPU, one on other devices. Traces and hooks use one. Results do not depend on it, except
        for the rounding of a single chunk, which uses the threads inside its products.
    chunk_size
        Tasks solved together. ``None``: as many as keep a step in cache.
    validate
        Check the tasks first; switch off in hot loops over data already checked.

    Raises
    ------
    InvalidArgumentError, ShapeError
        If the tasks or the solver's hyperparameters are not usable.

    Examples
    --------
    >>> from infoshot import Prototype, TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(Prototype(), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """
    if not isinstance(solver, Solver):
        raise InvalidArgumentError(f"solver must be a solver, such as TimAdm(); got {solver!r}.")
    if validate:
        tasks = checks.checked_tasks(tasks)
    solver.validate(tasks.n_way)
    recorder = TraceRecorder(len(tasks), solver.n_steps) if record_trace else None
    hooks = [hook for hook in (recorder, on_step) if hook is not None]
    if n_threads is None:
        n_threads = torch.get_num_threads() if tasks.z_sup.device.type == "cpu" else 1
    checks.at_least("n_threads", n_threads, 1)
    chunk_size = tasks_per_chunk(solver, tasks) if chunk_size is None else chunk_size
    checks.at_least("chunk_size", chunk_size, 1)
    solution = _join(
        map_chunks(
            lambda chunk: _solve_chunk(solver, tasks[chunk.start : chunk.stop], chunk.start, hooks),
            chunk_ranges(len(tasks), chunk_size),
            n_threads=1 if hooks else n_threads,
        )
    )
    _warn_if_not_finite(solution)
    if recorder is not None:
        solution = dataclasses.replace(solution, trace=recorder.trace(solution.n_steps))
    return solution


def tasks_per_chunk(solver: Solver[Any], tasks: TaskBatch) -> int:
    """How many tasks of this shape to solve together so that a step stays in cache."""
    device = "cpu" if tasks.z_sup.device.type == "cpu" else "cuda"
    item_size = max(tasks.z_sup.element_size(), 4)
    feature_bytes = (tasks.n_sup + tasks.n_qry) * tasks.dim * item_size
    return max(
        1,
        min(
            WORKING_SET_BYTES[device] // (solver.working_set(tasks) * item_size),
            MOST_FEATURE_BYTES[device] // feature_bytes,
            MOST_TASKS_PER_CHUNK[device],
        ),
    )


@torch.inference_mode()
def _solve_chunk(
    solver: Solver[StateT], task: TaskBatch, first_id: int, hooks: Sequence[StepHook]
) -> Solution:
    """Solve tasks that are few enough to be solved together."""
    dtype = task.z_sup.dtype
    if dtype.itemsize < 4:
        task = dataclasses.replace(task, z_sup=task.z_sup.float(), z_qry=task.z_qry.float())
    ids = torch.arange(first_id, first_id + len(task))
    ended: list[tuple[Tensor, Solution]] = []
    state = _watch(partial(solver.init, task), solver, 0, task, ids, hooks)
    for step in range(1, solver.n_steps + 1):
        before = state.posterior
        state = _watch(partial(solver.step, task, state), solver, step, task, ids, hooks)
        if solver.tolerance is None:
            continue
        still = (state.posterior - before).abs().amax((1, 2)) <= solver.tolerance
        if still.any():
            part = _finish(solver, task[still], state.select(still), step, Status.CONVERGED)
            ended.append((ids[still.cpu()], part))
            task, state, ids = task[~still], state.select(~still), ids[~still.cpu()]
            if not len(ids):
                break
    if len(ids):
        part = _finish(solver, task, state, solver.n_steps, Status.RAN_ALL_STEPS)
        ended.append((ids, part))
    return _in_order(ended, dtype)


def _watch(
    action: Callable[[], StateT],
    solver: Solver[StateT],
    step: int,
    task: TaskBatch,
    ids: Tensor,
    hooks: Sequence[StepHook],
) -> StateT:
    """Take one step; where somebody looks on, time it and tell them."""
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
    """Read the answer off the last state."""
    probabilities = solver.log_posterior(task, state).exp()
    prototypes = solver.prototypes(task, state)
    finite = probabilities.isfinite().all(-1).all(-1) & prototypes.isfinite().all(-1).all(-1)
    return Solution(
        probabilities,
        prototypes,
        status=torch.where(finite.cpu(), int(status), int(Status.NON_FINITE)),
        n_steps=torch.full((len(task),), steps),
    )


def _in_order(parts: list[tuple[Tensor, Solution]], dtype: torch.dtype) -> Solution:
    """Join the parts of a chunk that ended at different steps, in the order of their tasks."""
    if len(parts) == 1:
        only = parts[0][1]
        return dataclasses.replace(
            only, probabilities=only.probabilities.to(dtype), prototypes=only.prototypes.to(dtype)
        )
    order = torch.cat([ids for ids, _ in parts]).argsort()
    whole = _join(part for _, part in parts)
    place = order.to(whole.probabilities.device)
    return Solution(
        whole.probabilities[place].to(dtype),
        whole.prototypes[place].to(dtype),
        whole.status[order],
        whole.n_steps[order],
    )


def _join(parts: Iterable[Solution]) -> Solution:
    """Join solutions along the task axis."""
    parts = list(parts)
    return Solution(
        torch.cat([part.probabilities for part in parts]),
        torch.cat([part.prototypes for part in parts]),
        torch.cat([part.status for part in parts]),
        torch.cat([part.n_steps for part in parts]),
    )


def _warn_if_not_finite(solution: Solution) -> None:
    bad = (solution.status == Status.NON_FINITE).nonzero().flatten().tolist()
    if bad:
        warnings.warn(
            f"{len(bad)} of {len(solution.status)} tasks went non-finite (the first is task "
            f"{bad[0]}): features so large that their squares overflow, or a temperature too high; "
            "their probabilities are not numbers.",
            NonFiniteWarning,
            stacklevel=3,
        )
