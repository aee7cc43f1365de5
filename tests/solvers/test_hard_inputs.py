"""Numerically hard inputs: the first steps agree with float64, all values stay finite."""

import dataclasses

import numpy as np
import pytest
import torch

from infoshot import TaskBatch, TimAdm, TimGd, solve
from infoshot.solvers.objective import class_means, log_posterior
from infoshot.tasks import gaussian_tasks
from tests.reference import tim_numpy as paper
from tests.solvers.parity import reference

SOLVERS = {
    "adm, gram": TimAdm(form="gram"),
    "adm, feature": TimAdm(form="feature"),
    "gd": TimGd(),
}
CASES = ("tau 1000", "duplicates", "one query", "200 classes", "strided", "read-only")


def _tasks(case, dtype):
    n_way = 200 if case == "200 classes" else 4
    tasks, _ = gaussian_tasks(2, n_way=n_way, n_shot=2, n_query=3, dim=20, dtype=dtype)
    if case == "one query":
        tasks = dataclasses.replace(tasks, z_qry=tasks.z_qry[:, :1])
    if case == "duplicates":
        tasks = dataclasses.replace(tasks, z_qry=tasks.z_sup.clone())
    if case == "strided":
        tasks = dataclasses.replace(tasks, z_sup=tasks.z_sup.mT.contiguous().mT)
    return tasks


def _read_only(tasks):
    arrays = [tensor.numpy().copy() for tensor in (tasks.z_sup, tasks.y_sup, tasks.z_qry)]
    for array in arrays:
        array.setflags(write=False)
    return TaskBatch(*arrays, tasks.n_way)


def _descent_by_autograd(solver, tasks):
    """TIM-GD in float64 through autograd: in log space, where the paper's loops would underflow."""
    task = dataclasses.replace(tasks, z_sup=tasks.z_sup.double(), z_qry=tasks.z_qry.double())
    w = class_means(task.z_sup, task.y_sup, task.n_way).requires_grad_()
    adam = torch.optim.Adam([w], lr=solver.learning_rate)
    for _ in range(solver.n_steps):
        adam.zero_grad()
        terms = [log_posterior(z, w, solver.temperature) for z in (task.z_sup, task.z_qry)]
        solver.loss(task, *terms).sum().backward()
        adam.step()
    return log_posterior(task.z_qry, w, solver.temperature).exp().detach().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("case", CASES)
def test_first_steps_follow_float64_and_the_rest_is_finite(case, name, dtype):
    tasks = _tasks(case, dtype)
    solver = SOLVERS[name].with_settings(n_steps=3)
    if case == "tau 1000":
        solver = solver.with_settings(temperature=1000.0)
    if name == "gd":
        expected = _descent_by_autograd(solver, tasks)
    else:
        expected, _ = reference(paper.tim_adm, tasks, n_steps=3, tau=solver.temperature)
    if case == "read-only":
        tasks = _read_only(tasks)
    p = solve(solver, tasks).probabilities
    tolerance = 1e-9 if dtype == torch.float64 else 2e-3 if case == "tau 1000" else 1e-4
    np.testing.assert_allclose(p.double(), expected, atol=tolerance)
    to_the_end = solve(solver.with_settings(n_steps=100), tasks).probabilities
    assert to_the_end.isfinite().all()
    np.testing.assert_allclose(to_the_end.double().sum(-1), 1, atol=1e-5)
