"""Tasks whose objective ends higher than it was on the way are noticed and solved again."""

import dataclasses
import warnings
from dataclasses import dataclass

import pytest
import torch

from infoshot import Prototype, Solver, State, Status, TimAdm, TimAuto, solve
from infoshot.core.errors import DivergedWarning
from infoshot.metrics import accuracy
from infoshot.solvers import loop, solve_with_retry
from infoshot.solvers.adm_blocks import tim_loss_of_rows
from infoshot.solvers.objective import class_means, tim_loss
from infoshot.tasks import gaussian_tasks
from tests.solvers.overshooting import STEPS, overshooting_tasks

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def _percent(solution, labels):
    return 100 * accuracy(solution.probabilities, labels)


@dataclass(eq=False)
class _ScriptState(State):
    n_taken: int = 0


@dataclass(frozen=True, kw_only=True)
class _Script(Solver):
    """A solver whose objective takes prescribed values, one curve for each task."""

    curves: tuple[tuple[float, ...], ...] = ()
    n_steps: int = 3

    def init(self, task):
        return _ScriptState()

    def step(self, task, state):
        return _ScriptState(n_taken=state.n_taken + 1)

    def prototypes(self, task, state):
        return class_means(task.z_sup, task.y_sup, task.n_way)

    def objective(self, task, state):
        return torch.tensor(self.curves)[:, state.n_taken]


@pytest.mark.parametrize("hook", [None, lambda event: None])
def test_a_task_that_loses_a_tenth_of_its_gain_has_diverged(hook, monkeypatch):
    monkeypatch.setattr(loop, "EVERY", 1)
    curves = {
        (2.0, 1.5, 1.0, 1.0): False,
        (2.0, 1.0, 1.5, 1.0): False,  # it recovered
        (2.0, 1.5, 1.0, 1.09): False,
        (2.0, 1.5, 1.0, 1.11): True,
        (2.0, 1.0, 1.3, 1.2): True,
        (2.0, 2.0, 2.0, 2.5): True,
        (2.0, 2.0, 2.0, 2.009): False,  # within 0.01
        (2.0, 1.0, float("nan"), 2.0): False,
    }
    tasks, _ = gaussian_tasks(len(curves), n_way=2, dim=4)
    solution = solve(_Script(curves=tuple(curves)), tasks, on_step=hook, quiet=True)
    assert (solution.status == Status.DIVERGED).tolist() == list(curves.values())
    sentence = "The task diverged: its objective ended higher than it was on the way."
    assert solution.notes == tuple(sentence if bad else "" for bad in curves.values())


@pytest.mark.parametrize("hook", [None, lambda event: None])
@pytest.mark.parametrize(
    ("n_steps", "expected"), [(120, [0, 50, 100, 120]), (100, [0, 50, 100]), (20, [0, 20])]
)
def test_the_objective_is_evaluated_every_fifty_steps(n_steps, expected, hook, monkeypatch):
    taken, tasks = [], gaussian_tasks(1, n_way=2, dim=4)[0]

    def objective(solver, task, state):
        taken.append(state.n_taken)
        return torch.zeros(1)

    monkeypatch.setattr(_Script, "objective", objective)
    solve(_Script(n_steps=n_steps), tasks, on_step=hook)
    assert taken == expected


@DTYPES
@pytest.mark.parametrize("form", ["gram", "feature"])
def test_steps_that_overshoot_are_reported(dtype, form):
    tasks, _ = overshooting_tasks(4, dtype)
    solver = TimAdm(n_steps=STEPS[dtype], form=form)
    expected = f"4 of 4 tasks diverged, the first is task 0: .*n_steps={2 * STEPS[dtype]}, proto"
    with pytest.warns(DivergedWarning, match=expected):
        solution = solve(solver, tasks)
    assert (solution.status == Status.DIVERGED).all()
    assert (solution.n_steps == STEPS[dtype]).all()
    assert all("smaller steps avoid this" in note for note in solution.notes)
    assert repr(solution).endswith("4 diverged)")


@DTYPES
def test_tasks_that_end_far_below_class_means_are_reported(dtype):
    tasks, labels = overshooting_tasks(40, dtype)
    solution = solve(TimAdm(), tasks, quiet=True)
    far = _percent(solution, labels) < _percent(solve(Prototype(), tasks), labels) - 10
    assert far.any(), "the published update fails on some of these tasks"
    assert (solution.status[far] == Status.DIVERGED).all()


@DTYPES
def test_second_solve_ends_above_class_means(dtype):
    tasks, labels = overshooting_tasks(40, dtype)
    solver = TimAdm(n_steps=STEPS[dtype])
    first, again = solve(solver, tasks, quiet=True), solve_with_retry(solver, tasks)
    gain = _percent(again, labels) - _percent(solve(Prototype(), tasks), labels)
    assert (first.status == Status.DIVERGED).all()
    assert (again.status == Status.RAN_ALL_STEPS).all()
    assert gain.min() > -5  # at most three of 64 queries
    assert gain.mean() > 2
    assert all("solved again with smaller steps" in note for note in again.notes)
    assert (again.n_steps == 2 * STEPS[dtype]).all()


def test_only_diverged_tasks_are_solved_again():
    odd, _ = overshooting_tasks(2, torch.float64)
    usual, _ = gaussian_tasks(2, n_way=8, n_shot=5, n_query=8, dim=16, dtype=torch.float64)
    tasks = dataclasses.replace(
        odd,
        **{n: torch.cat((getattr(odd, n), getattr(usual, n))) for n in ("z_sup", "y_sup", "z_qry")},
    )
    solver = TimAdm(n_steps=STEPS[torch.float64])
    first, again = solve(solver, tasks, quiet=True), solve_with_retry(solver, tasks)
    assert first.status.tolist() == [3, 3, 0, 0]
    assert again.notes[2:] == ("", "")
    for name in ("probabilities", "prototypes", "outlier_scores", "n_steps"):
        assert torch.equal(getattr(first, name)[2:], getattr(again, name)[2:])
        smaller = solve(solver.with_smaller_steps(), odd)
        assert torch.equal(getattr(smaller, name), getattr(again, name)[:2])


def test_a_second_solve_that_diverges_is_reported(monkeypatch):
    tasks, _ = overshooting_tasks(2, torch.float64)
    solver = TimAdm(n_steps=STEPS[torch.float64])
    monkeypatch.setattr(TimAdm, "with_smaller_steps", lambda self: self)
    assert (solve_with_retry(solver, tasks, quiet=True).status == Status.DIVERGED).all()
    with pytest.warns(DivergedWarning, match="2 of 2 tasks diverged: "):
        solve_with_retry(solver, tasks)
    doubled = dataclasses.replace(solver, prototype_step_size=0.999)
    monkeypatch.setattr(TimAdm, "with_smaller_steps", lambda self: doubled)
    with pytest.warns(DivergedWarning, match="2 of 2 tasks diverged, also with smaller steps: "):
        solve_with_retry(solver, tasks)
    monkeypatch.setattr(TimAdm, "with_smaller_steps", lambda self: None)
    with pytest.warns(DivergedWarning, match="2 of 2 tasks diverged: "):
        solve_with_retry(solver, tasks)


@pytest.mark.parametrize("solver", [TimAdm(), TimAdm(form="feature"), TimAuto()])
def test_ordinary_tasks_are_not_reported(solver, real_tasks, easy_tasks):
    for tasks, _ in (real_tasks, easy_tasks):
        solution = solve(solver, tasks)
        assert (solution.status == Status.RAN_ALL_STEPS).all()


@pytest.mark.parametrize(
    "solver",
    [
        TimAdm(n_steps=120),
        TimAdm(n_steps=120, form="feature"),
        TimAdm(tolerance=0.01),
        TimAdm(n_steps=120, class_prior=(3, 2, 1, 1, 1)),
        TimAuto(),
    ],
)
@DTYPES
def test_watching_changes_no_result(solver, dtype, real_tasks, monkeypatch):
    tasks = dataclasses.replace(
        real_tasks[0], z_sup=real_tasks[0].z_sup.to(dtype), z_qry=real_tasks[0].z_qry.to(dtype)
    )
    watched = solve(solver, tasks, chunk_size=5, quiet=True)
    monkeypatch.setattr(type(solver), "objective", Solver.objective)
    plain = solve(solver, tasks, chunk_size=5)
    for name in ("probabilities", "prototypes", "outlier_scores", "n_steps"):
        assert torch.equal(getattr(watched, name), getattr(plain, name)), name


def test_tasks_that_converge_keep_their_watch():
    odd, _ = overshooting_tasks(3, torch.float64)
    settled, _ = gaussian_tasks(
        1, n_way=8, n_shot=5, n_query=8, dim=16, separation=9.0, dtype=torch.float64
    )
    tasks = dataclasses.replace(
        odd,
        **{
            n: torch.cat((getattr(settled, n), getattr(odd, n)))
            for n in ("z_sup", "y_sup", "z_qry")
        },
    )
    solver = TimAdm(n_steps=STEPS[torch.float64], tolerance=1e-4)
    solution = solve(solver, tasks, quiet=True)
    assert solution.status.tolist() == [1, 3, 3, 3]
    assert solution.n_steps[0] < 50


def test_soft_k_means_steps_are_not_watched(real_tasks):
    solver = TimAdm(linearized=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (solve(solver, real_tasks[0]).status == Status.RAN_ALL_STEPS).all()


def test_smaller_steps_are_at_most_a_quarter_and_twice_as_many():
    smaller = TimAdm().with_smaller_steps()
    assert smaller == TimAdm(prototype_step_size=0.25, n_steps=300)
    assert smaller.with_smaller_steps() == TimAdm(prototype_step_size=0.125, n_steps=600)
    prior = TimAdm(class_prior=(3, 2, 1), n_steps=10)  # takes half steps
    assert prior.with_smaller_steps() == dataclasses.replace(
        prior, prototype_step_size=0.25, n_steps=20
    )
    assert TimAuto().with_smaller_steps() is None


@pytest.mark.parametrize("prior", [None, (0.5, 0.3, 0.2)])
@pytest.mark.parametrize("beta", [1.0, torch.tensor([0.3, 0.7, 2.0], dtype=torch.float64)])
def test_loss_of_rows_is_the_loss_of_the_paper(prior, beta):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 3, 10, generator=generator, dtype=torch.float64)
    logits[:, 0, 5] = 4000.0  # probabilities of exactly zero
    y_sup = torch.tensor([[0, 1, 2, 1]] * 3)
    log_p = torch.log_softmax(logits, dim=1)
    log_prior = (
        None if prior is None else torch.tensor(prior, dtype=torch.float64).log().expand(3, 3)
    )
    weights = {"lam": 0.4, "beta": beta, "alpha": 0.2}
    expected = tim_loss(
        log_p[:, :, :4].mT, y_sup, log_p[:, :, 4:].mT, **weights, log_prior=log_prior
    )
    rows_prior = None if log_prior is None else log_prior.unsqueeze(-1)
    torch.testing.assert_close(tim_loss_of_rows(log_p, y_sup, rows_prior, **weights), expected)
