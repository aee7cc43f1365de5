import numpy as np
import pytest
import torch

from infoshot import TimAdm, TimGd, solve
from infoshot.solvers.objective import class_means, log_posterior
from infoshot.tasks import gaussian_tasks
from tests.reference import tim_numpy as paper
from tests.solvers.parity import BOTH, assert_parity


def test_reference_gradient_equals_finite_differences(easy_tasks):
    # Checks the reference itself by central differences of the paper's loss.
    z_s, y, z_q = (
        part[0].numpy() for part in (easy_tasks[0].z_sup, easy_tasks[0].y_sup, easy_tasks[0].z_qry)
    )
    onehot, prior = paper.one_hot(y, 3), np.array([0.5, 0.3, 0.2])
    w = paper.prototypes(z_s, onehot) + 0.1

    def loss(weights):
        p_s, p_q = paper.posterior(z_s, weights, 15.0), paper.posterior(z_q, weights, 15.0)
        return paper.tim_loss(p_s, onehot, p_q, 0.1, 1.0, 0.1, prior)

    gradient = paper.tim_gradient(z_s, onehot, z_q, w, 15.0, 0.1, 1.0, 0.1, prior)
    for place in [(0, 0), (1, 3), (2, 11)]:
        step = np.zeros_like(w)
        step[place] = 1e-6
        difference = (loss(w + step) - loss(w - step)) / 2e-6
        assert gradient[place] == pytest.approx(difference, abs=1e-8)


@pytest.mark.parametrize("prior", [None, [0.5, 0.2, 0.2, 0.05, 0.05]])
def test_gradient_equals_autograd(prior, real_tasks):
    task = real_tasks[0][:3]
    solver = TimGd(
        temperature=9.0,
        cross_entropy_weight=0.4,
        marginal_entropy_weight=0.8,
        conditional_entropy_weight=0.3,
        class_prior=prior,
    )
    state = solver.init(task)
    for _ in range(3):
        state = solver.step(task, state)
    w = state.weights.clone().requires_grad_()
    loss = solver.loss(task, log_posterior(task.z_sup, w, 9.0), log_posterior(task.z_qry, w, 9.0))
    (expected,) = torch.autograd.grad(loss.sum(), w)
    torch.testing.assert_close(solver._gradient(task, state), expected, atol=1e-12, rtol=0)


def test_whole_solve_equals_the_paper():
    tasks, _ = gaussian_tasks(2, n_way=4, dim=12, n_query=8, seed=7, dtype=torch.float64)
    assert_parity(TimGd(), tasks, paper.tim_gd, BOTH)


def test_first_ten_steps_equal_the_paper_on_real_features(real_tasks):
    assert_parity(TimGd(n_steps=10), real_tasks[0], paper.tim_gd, BOTH, n_steps=10)


ABLATION = {
    "CE": (
        {"marginal_entropy_weight": 0.0, "conditional_entropy_weight": 0.0},
        {"beta": 0.0, "alpha": 0.0},
    ),
    "CE + H(Y|X)": ({"marginal_entropy_weight": 0.0}, {"beta": 0.0}),
    "CE - H(Y)": ({"conditional_entropy_weight": 0.0}, {"alpha": 0.0}),
    "no support term": ({"cross_entropy_weight": 0.0}, {"lam": 0.0}),
    "a prior": ({"class_prior": [3.0, 1.0, 1.0]}, {"prior": np.array([0.6, 0.2, 0.2])}),
    "another step size": ({"learning_rate": 1e-3}, {"learning_rate": 1e-3}),
}


@pytest.mark.parametrize("row", ABLATION)
def test_every_ablation_row_equals_the_paper(row, easy_tasks):
    ours, theirs = ABLATION[row]
    assert_parity(TimGd(n_steps=50, **ours), easy_tasks[0], paper.tim_gd, n_steps=50, **theirs)


def test_descent_equals_torch_adam(real_tasks):
    task = real_tasks[0][:4]
    solver = TimGd(n_steps=200)
    w = class_means(task.z_sup, task.y_sup, 5).requires_grad_()
    adam = torch.optim.Adam([w], lr=1e-4)
    for _ in range(200):
        adam.zero_grad()
        log_p_sup = log_posterior(task.z_sup, w, 15.0)
        solver.loss(task, log_p_sup, log_posterior(task.z_qry, w, 15.0)).sum().backward()
        adam.step()
    ours = solve(solver, task)
    torch.testing.assert_close(ours.prototypes, w.detach(), atol=1e-10, rtol=0)


def test_loss_falls_and_ends_near_that_of_adm(real_tasks):
    task = real_tasks[0]
    gd = solve(TimGd(), task, record_trace=True).trace.loss
    adm = solve(TimAdm(), task, record_trace=True).trace.loss
    assert (gd[:, -1] < gd[:, 0]).all()
    assert (gd[:, -1] - adm[:, -1]).abs().mean() < 0.02
