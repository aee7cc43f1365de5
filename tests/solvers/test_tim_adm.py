import dataclasses

import numpy as np
import pytest
import torch

from infoshot import Prototype, TimAdm, solve
from infoshot.solvers.adm_blocks import log_sum, soft_labels
from infoshot.solvers.objective import adm_loss, log_posterior
from infoshot.tasks import gaussian_tasks
from tests.reference import tim_numpy as paper
from tests.solvers.parity import BOTH, assert_parity

FORMS = ("gram", "feature")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_shot", [1, 5])
def test_whole_solve_equals_the_paper(form, n_shot):
    tasks, _ = gaussian_tasks(3, n_shot=n_shot, dim=24, seed=7, dtype=torch.float64)
    assert_parity(TimAdm(form=form), tasks, paper.tim_adm, BOTH)


@pytest.mark.parametrize("form", FORMS)
def test_first_ten_steps_equal_the_paper_on_real_features(form, real_tasks):
    tasks, _ = real_tasks
    assert_parity(TimAdm(form=form, n_steps=10), tasks, paper.tim_adm, BOTH, n_steps=10)


@pytest.mark.parametrize("n_way", [2, 5, 20])
@pytest.mark.parametrize("n_query", [4, 15, 60])
def test_forms_agree_from_few_to_many_samples(n_way, n_query):
    dim = 16
    n_query = max(1, min(n_query, 4 * dim // n_way))
    tasks, _ = gaussian_tasks(3, n_way=n_way, n_query=n_query, dim=dim, dtype=torch.float64)
    gram, feature = (solve(TimAdm(form=form), tasks) for form in FORMS)
    torch.testing.assert_close(gram.probabilities, feature.probabilities, atol=1e-9, rtol=0)
    torch.testing.assert_close(gram.prototypes, feature.prototypes, atol=1e-9, rtol=0)
    assert_parity(TimAdm(n_steps=5), tasks[:1], paper.tim_adm, BOTH, n_steps=5)


ABLATION = {
    "CE + H(Y|X)": ({"marginal_entropy_weight": 0.0}, {"beta": 0.0}),
    "CE - H(Y)": ({"conditional_entropy_weight": 0.0}, {"alpha": 0.0}),
    "without the linearised term": ({"linearized": False}, {"linearized": False}),
    "half the marginal weight": ({"marginal_entropy_weight": 0.5}, {"beta": 0.5}),
    "no support term": ({"cross_entropy_weight": 0.0}, {"lam": 0.0}),
    "a prior": (
        {"class_prior": [3.0, 1.0, 1.0]},
        {"prior": np.array([0.6, 0.2, 0.2]), "step_size": 0.6},
    ),
    "a prior, whole steps": (
        {"class_prior": [3.0, 1.0, 1.0], "prototype_step_size": 1.0},
        {"prior": np.array([0.6, 0.2, 0.2])},
    ),
    "half steps": ({"prototype_step_size": 0.5}, {"step_size": 0.5}),
    "sharper": ({"temperature": 60.0}, {"tau": 60.0}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("row", ABLATION)
def test_every_ablation_row_equals_the_paper(row, form, easy_tasks):
    ours, theirs = ABLATION[row]
    assert_parity(TimAdm(form=form, **ours), easy_tasks[0], paper.tim_adm, **theirs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("linearized", [True, False])
def test_one_weight_step_is_a_scaled_gradient_step(form, linearized, real_tasks):
    # D_k (w_new - w_k) = -|S| / (tau (1 + alpha)) dL/dw_k of the ADM loss, for any weights and q;
    # without the linearised term, of the part of the loss that does not normalise p.
    task, lam, alpha, tau = real_tasks[0][:2], 0.4, 0.3, 9.0
    solver = TimAdm(
        temperature=tau,
        cross_entropy_weight=lam,
        conditional_entropy_weight=alpha,
        form=form,
        linearized=linearized,
    )
    state = solver.init(task)
    for _ in range(3):
        state = solver.step(task, state)
    w = solver.prototypes(task, state).clone().requires_grad_()
    log_p_qry = log_posterior(task.z_qry, w, tau)
    q = torch.from_numpy(
        np.stack([paper.q_step(p, 1.0, alpha) for p in log_p_qry.detach().exp().numpy()])
    )
    if linearized:
        log_p_sup = log_posterior(task.z_sup, w, tau)
        loss = adm_loss(log_p_sup, task.y_sup, log_p_qry, q.log(), lam=lam, beta=1.0, alpha=alpha)
    else:
        y = torch.nn.functional.one_hot(task.y_sup, 5).double()
        loss = lam * tau / 2 * (y * torch.cdist(task.z_sup, w) ** 2).sum((1, 2)) / task.n_sup
        loss = (
            loss
            + (1 + alpha) * tau / 2 * (q * torch.cdist(task.z_qry, w) ** 2).sum((1, 2)) / task.n_qry
        )
    (gradient,) = torch.autograd.grad(loss.sum(), w)
    counts = torch.nn.functional.one_hot(task.y_sup, 5).double().sum(1)
    d = lam / (1 + alpha) * counts + task.n_sup / task.n_qry * q.sum(1)
    moved = solver.prototypes(task, solver.step(task, state)) - w.detach()
    expected = -task.n_sup / (tau * (1 + alpha)) * gradient / d.unsqueeze(-1)
    torch.testing.assert_close(moved, expected, atol=1e-12, rtol=0)


def test_q_step_minimises_the_adm_loss_when_columns_are_balanced():
    # The closed form is exact if all rows are normalised by the same factor.
    p = torch.tensor([[[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7]]], dtype=torch.float64)
    log_p = p.log()
    y_sup, log_p_sup = torch.tensor([[0]]), log_p[:, :1]
    weights = {"lam": 0.0, "beta": 1.0, "alpha": 0.1}
    log_q = log_p.mT * 1.1
    log_q = soft_labels(log_q, 0.5 * log_sum(log_q)).mT.log()
    best = adm_loss(log_p_sup, y_sup, log_p, log_q, **weights)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        noise = 0.05 * torch.randn(1, 3, 3, generator=generator, dtype=torch.float64)
        other = torch.log_softmax(log_q + noise, -1)
        assert adm_loss(log_p_sup, y_sup, log_p, other, **weights) >= best - 1e-12


def test_form_is_chosen_by_cost():
    def chosen(n_query, dim, n_way=5):
        tasks, _ = gaussian_tasks(n_way=n_way, n_query=n_query, dim=dim)
        return TimAdm().init(tasks).gram_form

    assert chosen(n_query=15, dim=640)
    assert not chosen(n_query=400, dim=16)
    # Around N = 2 d with many classes and steps, N = d with few (the Gram matrix must pay off).
    assert chosen(n_query=5, dim=64, n_way=20)
    assert not chosen(n_query=7, dim=64, n_way=20)


@pytest.mark.parametrize("prior", [[10, 1, 1, 1, 1], [1, 1, 1, 1, 0.1], [1, 1, 1, 1, 0.01]])
def test_result_with_a_prior_does_not_depend_on_the_number_of_steps(prior, real_tasks):
    # Full steps oscillate between two states under such priors.
    tasks, _ = real_tasks
    even, odd = (
        solve(TimAdm(class_prior=prior, n_steps=n), tasks).probabilities for n in (150, 151)
    )
    assert (even - odd).abs().max() < 0.05
    whole = [
        solve(
            TimAdm(class_prior=prior, n_steps=n, prototype_step_size=1.0), tasks, quiet=True
        ).probabilities
        for n in (150, 151)
    ]
    assert (whole[0] - whole[1]).abs().max() > 0.05


def test_uniform_prior_changes_nothing(real_tasks):
    tasks, _ = real_tasks
    with_prior = solve(TimAdm(class_prior=[2] * 5), tasks).probabilities
    torch.testing.assert_close(with_prior, solve(TimAdm(), tasks).probabilities, atol=1e-6, rtol=0)


def test_class_without_queries_and_support_weight_keeps_its_weights():
    tasks, _ = gaussian_tasks(3, n_way=3, n_query=1, dim=8, separation=1.0)
    one = dataclasses.replace(tasks, z_qry=tasks.z_qry[:, :1])
    solution = solve(TimAdm(cross_entropy_weight=0.0, temperature=300.0), one)
    assert solution.probabilities.isfinite().all()


def test_true_prior_beats_the_uniform_one_on_skewed_queries():
    tasks, labels = gaussian_tasks(
        50, n_way=2, n_query=30, dim=16, separation=0.8, seed=11, dtype=torch.float64
    )
    skewed = dataclasses.replace(tasks, z_qry=tasks.z_qry[:, :36])  # 30 of class 0, 6 of class 1
    labels = labels[:, :36]

    def accuracy(solver):
        return (solve(solver, skewed).probabilities.argmax(-1) == labels).double().mean().item()

    assert accuracy(TimAdm(class_prior=[5 / 6, 1 / 6])) > accuracy(TimAdm()) + 0.05


def test_improves_on_prototypes_on_real_tasks(real_tasks):
    tasks, labels = real_tasks

    def accuracy(solver):
        return (solve(solver, tasks).probabilities.argmax(-1) == labels).double().mean().item()

    assert accuracy(TimAdm()) > accuracy(Prototype()) + 0.02
