import dataclasses
import time
from itertools import pairwise

import numpy as np
import pytest
import torch

from infoshot import (
    Prototype,
    ShapeError,
    Status,
    TaskBatch,
    TimAdm,
    TimGd,
    solve,
)
from infoshot.core.errors import NonFiniteWarning
from infoshot.solvers import Solver, tasks_per_chunk
from infoshot.solvers.objective import (
    conditional_entropy,
    log_posterior,
    marginal_entropy,
    support_cross_entropy,
)
from infoshot.tasks import gaussian_tasks


def test_prototype_is_the_nearest_class_mean(easy_tasks):
    tasks, _ = easy_tasks
    p = solve(Prototype(), tasks).probabilities
    means = torch.stack([tasks.z_sup[tasks.y_sup == k].view(4, 2, -1).mean(1) for k in range(3)], 1)
    assert torch.equal(p.argmax(-1), torch.cdist(tasks.z_qry, means).argmin(-1))


def test_prototype_of_a_query_on_a_prototype_is_certain_at_high_temperature():
    z = torch.eye(3).unsqueeze(0)
    tasks = TaskBatch(z, torch.tensor([[0, 1, 2]]), z, 3)
    torch.testing.assert_close(solve(Prototype(temperature=100.0), tasks).probabilities, z)


def test_early_stopping_reports_steps_and_keeps_the_answer(real_tasks):
    tasks, _ = real_tasks
    full = solve(TimAdm(n_steps=2000), tasks)
    early = solve(TimAdm(n_steps=2000, tolerance=1e-3), tasks)
    assert (full.status == Status.RAN_ALL_STEPS).all()
    assert (full.n_steps == 2000).all()
    assert (early.status == Status.CONVERGED).all()
    assert early.n_steps.max() < 2000
    assert len(early.n_steps.unique()) > 1
    same = early.probabilities.argmax(-1) == full.probabilities.argmax(-1)
    assert same.double().mean() > 0.98


def test_early_stopped_task_keeps_its_state_of_that_step(real_tasks):
    tasks, _ = real_tasks
    early = solve(TimAdm(tolerance=0.01), tasks)
    assert (early.n_steps < 100).all()
    posteriors = []
    solve(TimAdm(), tasks, on_step=lambda event: posteriors.append(event.log_posterior().exp()))
    moved = (torch.stack(posteriors).diff(dim=0)).abs().amax((2, 3))  # by step s + 1
    for i in (0, 5):
        steps = int(early.n_steps[i])
        # The posteriors at the start of the last two steps are compared.
        assert moved[steps - 2, i] <= 0.01
        assert (moved[: steps - 2, i] > 0.01).all()
        alone = solve(TimAdm(n_steps=steps), tasks[i : i + 1])
        torch.testing.assert_close(
            early.probabilities[i : i + 1], alone.probabilities, atol=1e-9, rtol=0
        )


@pytest.mark.parametrize(
    "solver", [TimAdm(tolerance=1e-12, n_steps=3), TimGd(tolerance=1e-9, n_steps=3)]
)
def test_running_out_of_steps_is_reported(solver, easy_tasks):
    solution = solve(solver, easy_tasks[0])
    assert (solution.status == Status.RAN_ALL_STEPS).all()
    assert (solution.n_steps == 3).all()


def test_a_non_finite_task_is_reported_and_does_not_affect_others():
    tasks, _ = gaussian_tasks(3, n_way=3, dim=8)
    z_sup = tasks.z_sup.clone()
    z_sup[1] *= 1e25  # its squares overflow float32
    broken = dataclasses.replace(tasks, z_sup=z_sup)
    with pytest.warns(NonFiniteWarning, match=r"1 of 3 tasks are not finite, the first of task 1:"):
        solution = solve(TimAdm(), broken)
    expected = [Status.RAN_ALL_STEPS, Status.NON_FINITE, Status.RAN_ALL_STEPS]
    assert solution.status.tolist() == expected
    torch.testing.assert_close(solution.probabilities[2], solve(TimAdm(), tasks).probabilities[2])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Huge(Solver):
    """Weights at the end of the range of float32, which are finite and whose sum is not."""

    def prototypes(self, task, state):
        return torch.full((len(task), task.n_way, task.dim), 3e38)

    def log_posterior(self, task, state):
        return torch.full((len(task), task.n_qry, task.n_way), 1 / task.n_way).log()


@pytest.mark.parametrize("n_tasks", [1, 3])
def test_solutions_can_be_used_with_autograd_and_written_to(n_tasks, easy_tasks):
    tasks = easy_tasks[0][:n_tasks]
    solution = solve(Prototype(), tasks)
    weight = torch.ones(1, dtype=tasks.z_qry.dtype, requires_grad=True)
    (solution.probabilities * weight).sum().backward()
    torch.testing.assert_close(weight.grad, solution.probabilities.sum().reshape(1))
    solution.prototypes.zero_()
    assert not torch.equal(solve(Prototype(), tasks).prototypes, solution.prototypes)


def test_a_solution_whose_sum_overflows_is_finite(easy_tasks):
    solution = solve(_Huge(), easy_tasks[0])
    assert (solution.status == Status.RAN_ALL_STEPS).all()


def test_trace_holds_the_terms_of_every_step(easy_tasks):
    tasks, _ = easy_tasks
    trace = solve(TimAdm(n_steps=6), tasks, record_trace=True).trace
    for step in (0, 3, 6):
        w = (
            solve(TimAdm(n_steps=step), tasks).prototypes
            if step
            else solve(Prototype(), tasks).prototypes
        )
        log_p_sup, log_p = log_posterior(tasks.z_sup, w, 15.0), log_posterior(tasks.z_qry, w, 15.0)
        cross = support_cross_entropy(log_p_sup, tasks.y_sup)
        marginal, conditional = marginal_entropy(log_p), conditional_entropy(log_p)
        torch.testing.assert_close(trace.cross_entropy[:, step], cross)
        torch.testing.assert_close(trace.marginal_entropy[:, step], marginal)
        torch.testing.assert_close(trace.conditional_entropy[:, step], conditional)
        torch.testing.assert_close(trace.mutual_information[:, step], marginal - conditional)
        torch.testing.assert_close(trace.loss[:, step], 0.1 * cross - marginal + 0.1 * conditional)
    assert trace.seconds.shape == (7,)
    assert (trace.seconds.diff() > 0).all()


def test_trace_adds_the_time_of_all_chunks(easy_tasks):
    tasks, _ = easy_tasks
    seen = []
    trace = solve(
        TimAdm(n_steps=3),
        tasks,
        record_trace=True,
        on_step=lambda event: seen.append(event.seconds),
        chunk_size=1,
    ).trace
    assert trace.seconds[-1].item() == pytest.approx(sum(seen))


def test_tensors_of_a_hook_are_copies_and_ordinary_tensors(easy_tasks):
    tasks, _ = easy_tasks
    for solver in (TimAdm(n_steps=3, form="feature"), TimGd(n_steps=3)):
        kept = []
        solve(solver, tasks, on_step=lambda event: kept.append(event.prototypes()))  # noqa: B023
        assert all(not torch.equal(a, b) for a, b in pairwise(kept))
        weights = kept[-1].requires_grad_()
        (weights**2).sum().backward()
        assert weights.grad is not None


def test_solution_is_made_of_ordinary_tensors(easy_tasks):
    prototypes = solve(TimAdm(), easy_tasks[0]).prototypes
    prototypes += 1
    prototypes.requires_grad_().sum().backward()
    assert (prototypes.grad == 1).all()


def test_repr_is_short(easy_tasks):
    tasks, _ = easy_tasks
    assert repr(tasks) == "TaskBatch(z_sup=[4, 6, 12], y_sup=[4, 6], z_qry=[4, 15, 12], n_way=3)"
    solution = solve(TimAdm(n_steps=2), tasks)
    assert repr(solution) == "Solution(4 tasks, 15 queries, 3 classes: 4 ran all steps)"


@pytest.mark.parametrize("solver", [TimAdm(tolerance=1e-3), TimGd(n_steps=50), Prototype()])
def test_recording_changes_no_result(solver, real_tasks):
    tasks, _ = real_tasks
    plain = solve(solver, tasks, chunk_size=5)
    traced = solve(solver, tasks, chunk_size=5, record_trace=True)
    assert torch.equal(plain.probabilities, traced.probabilities)
    assert plain.trace is None
    assert traced.trace.loss.isfinite().all()
    assert traced.trace.loss.shape == (12, solver.n_steps + 1)


def test_trace_of_a_stopped_task_keeps_its_last_value(real_tasks):
    tasks, _ = real_tasks
    solution = solve(TimAdm(tolerance=0.01), tasks, record_trace=True)
    first = int(solution.n_steps.argmin())
    tail = solution.trace.loss[first, int(solution.n_steps[first]) :]
    assert len(tail) > 50
    assert (tail == tail[0]).all()
    full = solve(TimAdm(), tasks, record_trace=True).trace
    torch.testing.assert_close(tail[0], full.loss[first, int(solution.n_steps[first])])


def test_hook_sees_every_step_and_its_time_is_not_counted(easy_tasks):
    tasks, _ = easy_tasks
    seen, seconds = [], []

    def hook(event):
        seen.append((event.step, event.task_ids.tolist()))
        seconds.append(event.seconds)
        assert event.log_posterior().shape == (2, 15, 3)
        time.sleep(0.01)

    solve(TimAdm(n_steps=3), tasks, on_step=hook, chunk_size=2)
    assert seen == [(step, ids) for ids in ([0, 1], [2, 3]) for step in range(4)]
    assert sum(seconds) < 0.05


def test_results_do_not_depend_on_threads_and_their_number_is_restored(easy_tasks):
    tasks, _ = gaussian_tasks(9, dim=16)
    torch.set_num_threads(2)
    results = [solve(TimAdm(), tasks, chunk_size=2, n_threads=n).probabilities for n in (1, 2, 3)]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_error_in_a_thread_reaches_the_caller():
    tasks, _ = gaussian_tasks(4, n_way=3)
    with pytest.raises(ShapeError, match=r"class_prior must hold one weight for each of the 3"):
        solve(TimAdm(class_prior=[0.5, 0.5]), tasks, chunk_size=1, n_threads=2)


def test_chunks_shrink_as_tasks_grow():
    small, _ = gaussian_tasks(dim=64)
    large, _ = gaussian_tasks(n_query=400, dim=2048)
    assert tasks_per_chunk(TimAdm(), small) > tasks_per_chunk(TimAdm(), large) >= 1
    assert tasks_per_chunk(TimGd(), large) == 1


def test_numpy_arrays_and_unusual_layouts_are_accepted(easy_tasks):
    tasks, _ = easy_tasks
    expected = solve(TimAdm(), tasks).probabilities
    z_qry = np.asfortranarray(tasks.z_qry.numpy())
    backwards = tasks.z_sup.numpy()[:, ::-1]  # negative strides
    labels = tasks.y_sup.numpy()[:, ::-1].astype(np.int32)
    big_endian = backwards.astype(backwards.dtype.newbyteorder(">"))
    p = solve(TimAdm(), TaskBatch(big_endian, labels, z_qry, 3)).probabilities
    torch.testing.assert_close(p, expected, atol=1e-9, rtol=0)


def test_notes_stay_with_their_tasks_also_where_chunks_have_none(monkeypatch):
    tasks, _ = gaussian_tasks(6, n_way=3, n_query=2, dim=4)

    def notes(self, task, state):
        loud = task.z_qry[:, 0, 0] > 0
        return tuple("loud" if is_loud else "" for is_loud in loud) if loud.any() else ()

    monkeypatch.setattr(Prototype, "notes", notes)
    expected = tuple("loud" if x > 0 else "" for x in tasks.z_qry[:, 0, 0])
    assert 0 < expected.count("loud") < 6
    for chunk_size in (1, 2, 6):
        assert solve(Prototype(), tasks, chunk_size=chunk_size).notes == expected
