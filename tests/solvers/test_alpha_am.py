"""Alpha-AM against its reference: the gradient, a few steps, and what its scores mean."""

import numpy as np
import pytest
import torch

from infoshot import AlphaAm, TaskBatch, TimAdm, solve
from infoshot.tasks import gaussian_tasks
from infoshot.testing import check_precision_and_extremes
from tests.reference import recent_numpy as reference


def _task(n_shot):
    tasks, _ = gaussian_tasks(
        1, n_way=3, n_shot=n_shot, n_query=1, dim=4, separation=1.0, seed=1, dtype=torch.float64
    )
    keep = list(range(1, tasks.n_sup)) if n_shot > 1 else [0, 1, 2]  # unequal shots
    return TaskBatch(tasks.z_sup[:, keep], tasks.y_sup[:, keep], tasks.z_qry, 3)


def _arrays(tasks):
    return tasks.z_sup[0].numpy(), tasks.y_sup[0].numpy(), tasks.z_qry[0].numpy()


@pytest.mark.parametrize("order", [1.0, 2.0, 5.0])
def test_gradient_equals_finite_differences(order):
    tasks, solver = _task(2), AlphaAm(n_neighbours=4, tsallis_alpha=order)
    state, noise = solver.init(tasks), torch.Generator().manual_seed(0)
    parts = (state.w, state.g, state.h)
    for part in parts:
        change = torch.rand(part.weights.shape, generator=noise, dtype=torch.float64)
        part.weights = part.weights * (1 + 0.2 * change)
    ours = solver.gradients(tasks, state)
    values = [part.weights[0].numpy() for part in parts]

    for i, gradient in enumerate(ours):

        def loss(x, i=i):
            changed = [x if j == i else value for j, value in enumerate(values)]
            return reference.alpha_am_loss(*changed, *_arrays(tasks), 15.0, 4, 0.8, order)

        expected = reference.finite_difference(loss, values[i])
        np.testing.assert_allclose(gradient[0], expected, atol=1e-7)


@pytest.mark.parametrize("n_shot", [1, 2, 6])
def test_equals_its_reference(n_shot):
    tasks, settings = _task(n_shot), {"n_steps": 3, "learning_rate": 5e-3}
    # A low temperature keeps gradients well above the errors of finite differences.
    # With one example its distance to the class mean is 0, and so ties, until the first step.
    settings["temperature"] = 3.0
    settings |= {1: {}, 2: {"n_neighbours": 3}, 6: {"n_steps": 1}}[n_shot]
    solution = solve(AlphaAm(**settings), tasks)
    expected = reference.alpha_am(*_arrays(tasks), 3, **settings)
    np.testing.assert_allclose(solution.probabilities[0], expected["p"], atol=1e-5)
    np.testing.assert_allclose(solution.prototypes[0], expected["w"], atol=1e-5)


def test_a_query_without_a_path_to_a_class_gets_equal_probabilities():
    z_sup = torch.tensor([[[1.0, 0, 0], [1.0, 0.1, 0], [0, 1.0, 0], [0.1, 1.0, 0]]])
    z_qry = torch.tensor([[[0.0, 0, 1], [0, 0, 1.1], [0.9, 0.1, 0.0]]])
    tasks = TaskBatch(z_sup, torch.tensor([[0, 0, 1, 1]]), z_qry, n_way=2)
    p = solve(AlphaAm(n_neighbours=1, n_steps=5), tasks).probabilities[0]
    torch.testing.assert_close(p[:2], torch.full((2, 2), 0.5))


def test_check_solver_limits_what_a_solver_may_declare(monkeypatch):
    assert TimAdm().rounding_error == 1e-3
    monkeypatch.setattr(AlphaAm, "rounding_error", 0.5)
    with pytest.raises(AssertionError, match="rounding_error must be"):
        check_precision_and_extremes(AlphaAm(n_steps=2))
