"""The kernels compute what the PyTorch steps compute.

They run on a GPU or in Triton's interpreter, which ``test_interpreted_kernels.py`` starts.
"""

import dataclasses

import pytest
import torch

from infoshot import TaskBatch, TimAdm, TimAuto, TimGd, solve
from infoshot.solvers import Solver, loop
from infoshot.solvers import _kernels as kernels
from tests.solvers.kernel_device import kernel_device

DEVICE = kernel_device()
pytestmark = [
    # From the interpreter: its scalars, and divisions of classes without samples, which are masked.
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:(invalid|divide by zero).*encountered:RuntimeWarning"),
]

CLOSE = {"atol": 1e-5, "rtol": 2e-5}


def _tasks(shots, dim=640, n_qry=75, n_tasks=2):
    generator = torch.Generator().manual_seed(0)
    n_way = len(shots)
    centres = torch.randn(n_tasks, n_way, dim, generator=generator)
    y_sup = torch.arange(n_way).repeat_interleave(torch.tensor(shots)).expand(n_tasks, -1)
    y_qry = torch.randint(n_way, (n_qry,), generator=generator).expand(n_tasks, -1)
    z_sup, z_qry = (
        torch.nn.functional.normalize(
            centres.gather(1, y.unsqueeze(-1).expand(-1, -1, dim))
            + 2 * torch.randn(*y.shape, dim, generator=generator),
            dim=-1,
        ).to(DEVICE)
        for y in (y_sup, y_qry)
    )
    return TaskBatch(z_sup, y_sup.contiguous().to(DEVICE), z_qry, n_way=n_way)


def _assert_same(solver, task, state, expected):
    torch.testing.assert_close(state.weights, expected.weights, **CLOSE)
    torch.testing.assert_close(
        solver.log_posterior(task, state).exp(), solver.log_posterior(task, expected).exp(), **CLOSE
    )


@pytest.mark.parametrize(
    ("settings", "shots", "balance"),
    [
        ({}, [1] * 5, None),
        ({}, [5] * 5, None),
        ({}, [3, 1, 2], [0.1, 0.5]),
        ({"class_prior": (0.5, 0.3, 0.2)}, [1, 1, 1], None),
        ({"class_prior": (5, 2, 1, 1, 1), "marginal_entropy_weight": 2}, [5] * 5, None),
        ({"linearized": False}, [3, 1, 2], None),
        ({"prototype_step_size": 0.5}, [1] * 5, None),
        ({"cross_entropy_weight": 0.0, "marginal_entropy_weight": 0.0}, [3, 1, 2], None),
    ],
)
def test_adm_kernel_equals_steps(settings, shots, balance):
    solver, task = TimAdm(form="gram", **settings), _tasks(shots)
    exact_task = dataclasses.replace(task, z_sup=task.z_sup.double(), z_qry=task.z_qry.double())
    state, plain, exact = solver.init(task), solver.init(task), solver.init(exact_task)
    if balance is not None:
        state.balance = plain.balance = torch.tensor(balance, device=DEVICE).view(-1, 1, 1)
        exact.balance = plain.balance.double()
    for _ in range(8):
        plain, exact = solver.step(task, plain), solver.step(exact_task, exact)
    assert solver._has_kernel(task, state)
    solver.advance(task, state, 8)
    # A class that disappears amplifies rounding: the kernel is as exact as the PyTorch steps.
    allowed = 1e-5 + 4 * (plain.weights - exact.weights).abs().max()
    assert (state.weights - exact.weights).abs().max() <= allowed
    p, p_exact = (
        solver.log_posterior(t, s).exp().double() for t, s in ((task, state), (exact_task, exact))
    )
    torch.testing.assert_close(p, p_exact, **CLOSE)


@pytest.mark.parametrize(
    ("settings", "shots", "dim"),
    [
        ({}, [1] * 5, 640),
        ({}, [5] * 5, 640),
        ({"learning_rate": 1e-3}, [3, 1, 2], 70),
        ({"class_prior": (0.5, 0.3, 0.2), "temperature": 9}, [1, 1, 1], 70),
        ({"cross_entropy_weight": 0, "conditional_entropy_weight": 1}, [3, 1, 2], 70),
    ],
)
def test_descent_kernel_equals_steps(settings, shots, dim):
    solver, task = TimGd(**settings), _tasks(shots, dim)
    expected, state = solver.init(task), solver.init(task)
    for _ in range(5):
        expected = solver.step(task, expected)
    assert kernels.takes(state.z, state.z.shape[1], task.n_way)
    solver.advance(task, state, 5)
    _assert_same(solver, task, state, expected)
    torch.testing.assert_close(state.mean, expected.mean, **CLOSE)
    torch.testing.assert_close(state.square, expected.square, **CLOSE)


@pytest.mark.parametrize("n_way", [2, 6, 16])
@pytest.mark.parametrize("solver", [TimAdm(form="gram"), TimGd()])
def test_any_size_that_fits(solver, n_way):
    # Few samples and as many as fit; neither count is a power of two.
    for n_qry in (3, 128 - n_way):
        task = _tasks([1] * n_way, dim=20, n_qry=n_qry)
        expected = Solver.advance(solver, task, solver.init(task), 2)
        state = solver.advance(task, solver.init(task), 2)
        _assert_same(solver, task, state, expected)


@pytest.mark.parametrize("name", ["adm", "descent"])
def test_advance_in_parts_equals_advance_at_once(name):
    solver = TimAdm(form="gram") if name == "adm" else TimGd()
    task = _tasks([2, 1, 1], dim=70)
    whole = solver.advance(task, solver.init(task), 5)
    parts = solver.advance(task, solver.advance(task, solver.init(task), 2), 3)
    torch.testing.assert_close(parts.weights, whole.weights, **CLOSE)


@pytest.mark.parametrize(
    "solver",
    [
        TimAdm(n_steps=6, form="gram"),
        TimAuto(n_steps=4, n_trial_steps=3),
        TimGd(n_steps=6, learning_rate=1e-3),
    ],
)
def test_solve_with_kernels_equals_solve_without(solver, monkeypatch):
    task = _tasks([5] * 3)
    launched = []
    monkeypatch.setattr(kernels, "takes", lambda *_: launched.append(True) or True)
    ours = solve(solver, task)
    assert launched
    monkeypatch.setattr(kernels, "takes", lambda *_: False)
    plain = solve(solver, task)
    torch.testing.assert_close(ours.probabilities, plain.probabilities, **CLOSE)
    torch.testing.assert_close(ours.prototypes, plain.prototypes, **CLOSE)


def test_a_watched_solve_runs_the_kernel_in_parts_with_the_same_result(monkeypatch):
    solver, task = TimAdm(n_steps=7, form="gram"), _tasks([2, 1, 1], dim=70)
    parts, advance = [], TimAdm.advance
    monkeypatch.setattr(loop, "EVERY", 3)
    monkeypatch.setattr(
        TimAdm, "advance", lambda s, t, x, n: parts.append(n) or advance(s, t, x, n)
    )
    watched = solve(solver, task)
    assert parts == [3, 3, 1]
    monkeypatch.setattr(TimAdm, "objective", Solver.objective)
    plain = solve(solver, task)
    assert parts[3:] == [7]
    assert torch.equal(watched.probabilities, plain.probabilities)
    assert torch.equal(watched.prototypes, plain.prototypes)


def test_kernels_are_for_small_tasks_in_float32():
    z = torch.zeros(1, device=DEVICE)
    assert kernels.takes(z, 128, 16)
    assert not kernels.takes(z.double(), 128, 16)
    assert not kernels.takes(z, 129, 16)
    assert not kernels.takes(z, 128, 17)
    assert not kernels.available(torch.device("meta"))


def test_a_tolerance_takes_single_steps():
    solver, task = TimAdm(form="gram", n_steps=4, tolerance=1e-9), _tasks([1] * 3, dim=70)
    state = solver.advance(task, solver.init(task), 1)
    assert state.posterior.isfinite().all()
    assert dataclasses.replace(solver, tolerance=None)._has_kernel(task, state)
