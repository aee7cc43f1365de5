"""Ridge regression and the support vector machine against slow versions, and their gradients."""

import numpy as np
import pytest
import torch

from infoshot.solvers.convex_heads import onto_simplex, ridge_weights, svm_weights
from infoshot.tasks import gaussian_tasks
from tests.reference import heads_numpy as reference

N_WAY = 4


def _support(dim=16, dtype=torch.float64):
    tasks, _ = gaussian_tasks(2, n_way=N_WAY, n_shot=3, dim=dim, separation=1.0, seed=5)
    keep = [0, 1, 2, 3, 4, 6, 9, 10]  # 3, 2, 1 and 2 examples
    return 3 * tasks.z_sup[:, keep].to(dtype), tasks.y_sup[:, keep]


@pytest.mark.parametrize("dim", [16, 6])  # more and fewer than the samples
@pytest.mark.parametrize("regularization", [0.1, 50.0])
def test_ridge_solves_the_normal_equations(dim, regularization):
    z, y = _support(dim)
    w = ridge_weights(z, y, N_WAY, regularization)
    for i in range(len(z)):
        expected = reference.ridge(z[i].numpy(), y[i].numpy(), N_WAY, regularization)
        np.testing.assert_allclose(w[i], expected, atol=1e-12)


@pytest.mark.parametrize("dim", [16, 6])
@pytest.mark.parametrize("cost", [0.1, 1.0])
def test_svm_equals_coordinate_descent(dim, cost):
    z, y = _support(dim)
    w = svm_weights(z, y, N_WAY, cost)
    for i in range(len(z)):
        arrays = z[i].numpy(), y[i].numpy()
        expected = reference.svm(*arrays, N_WAY, cost)
        np.testing.assert_allclose(w[i], expected, atol=1e-9)
        value = reference.svm_objective(w[i].numpy(), *arrays, cost)
        assert value <= reference.svm_objective(expected, *arrays, cost) + 1e-10


def test_svm_separates_with_margin_one_if_violations_cost_much():
    z, y = _support()
    scores = svm_weights(z, y, N_WAY, 1e4) @ z.mT
    own = scores.gather(1, y.unsqueeze(1))
    others = scores.scatter(1, y.unsqueeze(1), -torch.inf)
    assert (own - others).min() == pytest.approx(1, abs=1e-6)


def test_svm_with_a_tiny_cost_spreads_the_violations():
    """Two classes of unit vectors far from the margin: every coefficient is at its bound C."""
    z, y = torch.eye(2, dtype=torch.float64).unsqueeze(0), torch.tensor([[0, 1]])
    expected = torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]]).double()
    torch.testing.assert_close(svm_weights(z, y, 2, 0.01), 0.01 * expected)


@pytest.mark.parametrize("solve", [ridge_weights, svm_weights])
@pytest.mark.parametrize("dim", [16, 6])
def test_gradients_equal_finite_differences(solve, dim):
    z, y = _support(dim)
    z.requires_grad_()
    w = solve(z, y, N_WAY, 0.5)
    torch.testing.assert_close(w, solve(z.detach(), y, N_WAY, 0.5), atol=1e-9, rtol=0)
    generator = torch.Generator().manual_seed(0)
    weights, move = (
        torch.randn(like.shape, generator=generator, dtype=like.dtype) for like in (w, z)
    )
    (gradient,) = torch.autograd.grad((weights * w).sum(), z)
    h = 1e-5
    with torch.no_grad():
        further, back = (solve(z + sign * h * move, y, N_WAY, 0.5) for sign in (1, -1))
    expected = (weights * (further - back)).sum() / (2 * h)
    torch.testing.assert_close((gradient * move).sum(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("solve", [ridge_weights, svm_weights])
def test_batch_equals_loop_and_single_precision_is_close(solve):
    z, y = _support()
    together = solve(z, y, N_WAY, 0.5)
    single = torch.cat([solve(z[i : i + 1], y[i : i + 1], N_WAY, 0.5) for i in range(len(z))])
    torch.testing.assert_close(together, single, atol=1e-10, rtol=0)
    torch.testing.assert_close(
        solve(z.float(), y, N_WAY, 0.5).double(), together, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("solve", [ridge_weights, svm_weights])
@pytest.mark.parametrize("length", [1.0, 0.0, 1e6])
def test_linearly_dependent_and_very_long_samples(solve, length):
    z, y = length * torch.ones(1, 4, 3), torch.tensor([[0, 0, 1, 1]])
    w = solve(z.requires_grad_(), y, 2, 0.1)
    (gradient,) = torch.autograd.grad(w.sum(), z)
    assert w.isfinite().all()
    assert gradient.isfinite().all()
    if length < 1e6:  # rounding of coefficients of 1e-12
        torch.testing.assert_close(w[:, 0], w[:, 1])


def test_projection_onto_the_simplex():
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = onto_simplex(x, 0.7)
    for t in range(2):
        for i in range(3):
            expected = reference.onto_simplex(x[t, :, i].numpy(), 0.7)
            np.testing.assert_allclose(found[t, :, i], expected, atol=1e-12)
