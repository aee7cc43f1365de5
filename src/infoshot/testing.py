"""``check_solver``: checks that a solver keeps the contract, for our solvers and for yours.

>>> from infoshot import Prototype
>>> check_solver(Prototype())
"""

import dataclasses
import inspect
import json
import pickle
import tomllib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from infoshot.core.errors import InvalidArgumentError
from infoshot.core.types import Solution, TaskBatch
from infoshot.solvers import Solver, solve
from infoshot.tasks import gaussian_tasks

__all__ = ["check_solver"]

Check = Callable[[Solver[Any], str], None]


def check_solver(solver: Solver[Any], device: str = "cpu") -> None:
    """Run every check on a solver; raises ``AssertionError`` on failure.

    Parameters
    ----------
    solver
        A solver instance, such as ``MySolver()``.
    device
        Device of the tasks that the checks solve.

    Raises
    ------
    AssertionError
        If a check fails or the solver raises; the message starts with the name of the check.

    Examples
    --------
    >>> from infoshot import TimAdm
    >>> check_solver(TimAdm(n_steps=5))
    """
    for check in CHECKS:
        try:
            check(solver, device)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from None
        except Exception as error:
            raise AssertionError(
                f"{check.__name__}: the solver raised {type(error).__name__}: {error}"
            ) from error


def check_is_a_frozen_dataclass(solver: Solver[Any], device: str = "cpu") -> None:
    """A solver is an instance of a frozen dataclass."""
    assert isinstance(solver, Solver), f"not a Solver instance: {solver!r}"
    kind = type(solver)
    parameters = vars(kind).get("__dataclass_params__")
    assert parameters is not None, f"{kind.__name__} is not a dataclass"
    assert parameters.frozen, f"{kind.__name__} is not frozen: write @dataclass(frozen=True)"


def check_output_follows_input(solver: Solver[Any], device: str = "cpu") -> None:
    """Shapes, dtype and device follow the tasks; rows are probability distributions."""
    for dtype, rounding in (
        (torch.float64, 1e-9),
        (torch.float32, 1e-5),
        (torch.float16, 5e-3),
        (torch.bfloat16, 5e-2),
    ):
        tasks = _tasks(device, dtype)
        solution = solve(solver, tasks)
        p, w = solution.probabilities, solution.prototypes
        assert p.shape == (len(tasks), tasks.n_qry, tasks.n_way), "probabilities: wrong shape"
        assert w.shape == (len(tasks), tasks.n_way, tasks.dim), "prototypes: wrong shape"
        assert p.dtype == w.dtype == dtype, f"the result must have dtype {dtype}; got {p.dtype}"
        assert p.device == tasks.z_sup.device, "the result must be on the device of the tasks"
        assert solution.status.shape == solution.n_steps.shape == (len(tasks),)
        scores = solution.outlier_scores
        assert scores.shape == p.shape[:2], "outlier_scores: wrong shape"
        assert scores.isfinite().all(), "outlier_scores must be finite"
        assert len(solution.notes) in (0, len(tasks)), "notes must have one entry per task, or none"
        assert (p >= 0).all(), "probabilities must not be negative"
        error = (p.double().sum(-1) - 1).abs().max()
        assert error < rounding, f"rows must sum to one; the error is {error}"


def check_inputs_unchanged(solver: Solver[Any], device: str = "cpu") -> None:
    """Solving leaves the tasks unchanged, bit for bit."""
    tasks = _tasks(device)
    before = [tensor.clone() for tensor in (tasks.z_sup, tasks.y_sup, tasks.z_qry)]
    solve(solver, tasks)
    for old, new in zip(before, (tasks.z_sup, tasks.y_sup, tasks.z_qry), strict=True):
        assert torch.equal(old, new), "the solver wrote into its input"


def check_deterministic(solver: Solver[Any], device: str = "cpu") -> None:
    """Two runs give the same result, and the global random state does not change."""
    tasks, state = _tasks(device), torch.get_rng_state()
    first, second = solve(solver, tasks), solve(solver, tasks)
    assert torch.equal(first.probabilities, second.probabilities), "two runs differ"
    assert torch.equal(state, torch.get_rng_state()), "the global random state changed"


def check_batch_equals_loop(solver: Solver[Any], device: str = "cpu") -> None:
    """Tasks do not influence each other, for any chunk size and number of threads."""
    tasks = _tasks(device)
    together = solve(solver, tasks)
    for chunk_size, n_threads in ((1, 1), (2, 2)):
        apart = solve(solver, tasks, chunk_size=chunk_size, n_threads=n_threads)
        _close(together, apart, f"chunks of {chunk_size} differ from the whole batch")
    single = solve(solver, tasks[1:2])
    _close_tensors(together.probabilities[1:2], single.probabilities, "a single task differs")


def check_equivariant(solver: Solver[Any], device: str = "cpu") -> None:
    """The order of queries, support and classes does not matter."""
    tasks = _tasks(device)
    p = solve(solver, tasks).probabilities
    order = torch.randperm(tasks.n_qry, generator=torch.Generator().manual_seed(1))
    shuffled = dataclasses.replace(tasks, z_qry=tasks.z_qry[:, order])
    _close_tensors(
        p[:, order],
        solve(solver, shuffled).probabilities,
        "the order of queries matters",
    )
    order = torch.randperm(tasks.n_sup, generator=torch.Generator().manual_seed(2))
    shuffled = dataclasses.replace(tasks, z_sup=tasks.z_sup[:, order], y_sup=tasks.y_sup[:, order])
    _close_tensors(p, solve(solver, shuffled).probabilities, "the order of support matters")
    if getattr(solver, "class_prior", None) is None:
        names = torch.arange(tasks.n_way, device=device).roll(1)
        renamed = dataclasses.replace(tasks, y_sup=names[tasks.y_sup])
        _close_tensors(
            p,
            solve(solver, renamed).probabilities[..., names],
            "class numbers matter",
        )


def check_never_sees_query_labels(solver: Solver[Any], device: str = "cpu") -> None:
    """Neither the tasks nor the methods of the solver have a place for query labels."""
    assert [field.name for field in dataclasses.fields(TaskBatch)] == [
        "z_sup",
        "y_sup",
        "z_qry",
        "n_way",
    ], "TaskBatch must not hold query labels"
    for name in ("init", "step", "log_posterior", "prototypes"):
        extra = set(inspect.signature(getattr(solver, name)).parameters) - {"task", "state"}
        assert not extra, f"{name} takes other arguments than the task and the state: {extra}"


def check_precision_and_extremes(solver: Solver[Any], device: str = "cpu") -> None:
    """Float32 agrees with float64; huge norms, duplicates and a high temperature stay finite."""
    single, double = _tasks(device, torch.float32), _tasks(device)
    difference = solve(solver, single).probabilities.double() - solve(solver, double).probabilities
    declared = solver.rounding_error
    assert 0 < declared <= 0.05, f"rounding_error must be above 0 and at most 0.05; got {declared}"
    assert difference.abs().max() < declared, f"float32 differs from float64 by over {declared:g}"
    huge = dataclasses.replace(single, z_sup=single.z_sup * 1e6, z_qry=single.z_qry * 1e6)
    same = dataclasses.replace(
        single, z_sup=torch.ones_like(single.z_sup), z_qry=torch.ones_like(single.z_qry)
    )
    one = dataclasses.replace(single, z_qry=single.z_qry[:, :1])
    sharp = solver.at_temperature(1000.0)
    for name, hard_solver, tasks in (
        ("features of length 1e6", solver, huge),
        ("identical points", solver, same),
        ("a single query", solver, one),
        ("temperature 1000", sharp, single),
    ):
        solution = solve(hard_solver, tasks)
        assert solution.probabilities.isfinite().all(), f"{name}: the probabilities are not finite"
        error = (solution.probabilities.sum(-1) - 1).abs().max()
        assert error < 1e-4, f"{name}: rows do not sum to one"


def check_unequal_shots(solver: Solver[Any], device: str = "cpu") -> None:
    """Classes may have different numbers of examples; one without examples is refused."""
    tasks = _tasks(device)
    keep = torch.arange(1, tasks.n_sup)
    fewer = dataclasses.replace(tasks, z_sup=tasks.z_sup[:, keep], y_sup=tasks.y_sup[:, keep])
    p = solve(solver, fewer).probabilities
    assert p.isfinite().all(), "unequal shots give probabilities that are not finite"
    missing = dataclasses.replace(tasks, y_sup=tasks.y_sup.clamp(max=tasks.n_way - 2))
    _raises(lambda: solve(solver, missing), f"none of class {tasks.n_way - 1}")


def check_classifies_new_samples(solver: Solver[Any], device: str = "cpu") -> None:
    """An inductive solver classifies new samples, also a single one, from its class weights."""
    if not solver.inductive:
        return
    tasks = _tasks(device)
    w = solve(solver, tasks).prototypes
    for z in (tasks.z_qry, tasks.z_qry[:, :1]):
        p = solver.classify(z, w).exp()
        shape = (len(tasks), z.shape[1], tasks.n_way)
        assert p.shape == shape, f"classify must return shape {shape}; got {tuple(p.shape)}"
        assert ((p.sum(-1) - 1).abs() < 1e-9).all(), "rows of classify must sum to one"


def check_hyperparameters_survive_storage(solver: Solver[Any], device: str = "cpu") -> None:
    """``repr``, pickling and TOML keep every hyperparameter."""
    settings = solver.settings()
    assert all(name in repr(solver) for name in settings), "repr must contain every field"
    assert pickle.loads(pickle.dumps(solver)) == solver, "a pickled solver must equal the original"
    lines = [f"{name} = {json.dumps(v)}" for name, v in settings.items() if v is not None]
    names = {field.name for field in dataclasses.fields(solver)}  # type: ignore[arg-type]
    # A trained head also has fields that are not settings.
    build = type(solver) if names == set(settings) else solver.with_settings
    rebuilt = build(**tomllib.loads("\n".join(lines))).settings()
    assert json.dumps(rebuilt) == json.dumps(settings), "TOML must preserve every hyperparameter"


def check_bad_arguments_are_named(solver: Solver[Any], device: str = "cpu") -> None:
    """A wrong value of a hyperparameter with a rule is refused by name."""
    for name in solver.rules.keys() & solver.settings().keys():
        for wrong in (-1, "nonsense", float("nan")):
            broken = solver.with_settings(**{name: wrong})
            _raises(partial(solve, broken, _tasks(device)), name)


CHECKS: tuple[Check, ...] = (
    check_is_a_frozen_dataclass,
    check_output_follows_input,
    check_inputs_unchanged,
    check_deterministic,
    check_batch_equals_loop,
    check_equivariant,
    check_never_sees_query_labels,
    check_precision_and_extremes,
    check_unequal_shots,
    check_classifies_new_samples,
    check_hyperparameters_survive_storage,
    check_bad_arguments_are_named,
)


def _tasks(device: str, dtype: torch.dtype = torch.float64) -> TaskBatch:
    tasks, _ = gaussian_tasks(3, n_way=4, n_shot=2, n_query=6, dim=16, seed=3, dtype=dtype)
    return TaskBatch(
        tasks.z_sup.to(device), tasks.y_sup.to(device), tasks.z_qry.to(device), tasks.n_way
    )


def _close(first: Solution, second: Solution, message: str) -> None:
    _close_tensors(first.probabilities, second.probabilities, message)
    _close_tensors(first.prototypes, second.prototypes, message)
    assert torch.equal(first.n_steps, second.n_steps), message


def _close_tensors(first: Tensor, second: Tensor, message: str) -> None:
    difference = (first - second).abs().max()
    assert difference < 1e-7, f"{message} by {difference}"


def _raises(action: Callable[[], object], part: str) -> None:
    try:
        action()
    except InvalidArgumentError as error:
        message = str(error)
    else:
        message = "(no error was raised)"
    assert part in message, f"the error message must contain '{part}'; got: {message}"
