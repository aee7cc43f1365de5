"""Heads of published systems against slow versions, scikit-learn and PyTorch's own optimiser."""

import dataclasses

import numpy as np
import pytest
import sklearn.linear_model
import torch

from infoshot import FeatureTable, TaskBatch, solve
from infoshot.core.types import Status
from infoshot.features import prepare
from infoshot.solvers import (
    METHODS,
    BaselinePlusPlusSgd,
    BaselineSgd,
    LogisticRegression,
    Matching,
    MatchingT,
    MetaOpt,
    Prototype,
    PrototypeT,
)
from infoshot.tasks import TaskSpec, gaussian_tasks, sample_tasks
from tests.reference import heads_numpy as reference

CASES = {
    "baseline-sgd": (BaselineSgd(n_steps=5), reference.baseline_sgd),
    "baseline-sgd, other settings": (
        BaselineSgd(n_steps=4, batch_size=3, momentum=0.5, dampening=0.0, temperature=2.0, seed=3),
        reference.baseline_sgd,
    ),
    "baseline++-sgd": (BaselinePlusPlusSgd(n_steps=5), reference.baseline_plus_plus_sgd),
    "neg-cosine": (
        BaselinePlusPlusSgd(n_steps=5, learns_lengths=False, temperature=5.0),
        reference.baseline_plus_plus_sgd,
    ),
    "metaopt-ridge": (MetaOpt(regularization=2.0), reference.meta_opt),
    "metaopt-svm": (MetaOpt(problem="svm", cost=1.0), reference.meta_opt),
    "prototype+t": (PrototypeT(), reference.prototype_t),
    "prototype+t, three rounds": (PrototypeT(n_steps=3, share=0.3), reference.prototype_t),
    "matching+t": (MatchingT(), reference.matching_t),
    "matching+t, sharp": (MatchingT(temperature=20.0), reference.matching_t),
}


def _tasks():
    tasks, _ = gaussian_tasks(
        2, n_way=4, n_shot=3, n_query=2, dim=6, separation=1.0, seed=5, dtype=torch.float64
    )
    keep = [0, 1, 2, 3, 4, 6, 9, 10]  # 3, 2, 1 and 2 examples
    return TaskBatch(tasks.z_sup[:, keep], tasks.y_sup[:, keep], tasks.z_qry[:, :7], 4)


def _arrays(tasks, i):
    return tasks.z_sup[i].numpy(), tasks.y_sup[i].numpy(), tasks.z_qry[i].numpy()


@pytest.mark.parametrize("name", CASES)
def test_equals_its_reference(name):
    (solver, slow), tasks = CASES[name], _tasks()
    solution = solve(solver, tasks)
    for i in range(len(tasks)):
        expected = slow(*_arrays(tasks, i), 4, **solver.settings())
        np.testing.assert_allclose(solution.probabilities[i], expected["p"], atol=1e-9)
        np.testing.assert_allclose(solution.prototypes[i], expected["w"], atol=1e-9)


def _real(embedded, name, n_shot):
    features = prepare(embedded, METHODS[name].preparation).double()
    table = FeatureTable(features, embedded.labels)
    return sample_tasks(table, TaskSpec(n_shot=n_shot), 2)[0]


@pytest.mark.parametrize("case", ["small", 1, 5])
@pytest.mark.parametrize("inverse_penalty", [1.0, 100.0])
def test_distill_is_scikit_learns_logistic_regression(case, inverse_penalty, embedded):
    tasks = _tasks() if case == "small" else _real(embedded, "distill", case)
    solver = LogisticRegression(inverse_penalty=inverse_penalty, tolerance=1e-12, n_steps=20_000)
    solution = solve(solver, tasks)
    assert (solution.status == Status.CONVERGED).all()
    for i in range(len(tasks)):
        z_s, y_s, z_q = _arrays(tasks, i)
        theirs = sklearn.linear_model.LogisticRegression(
            C=inverse_penalty, solver="newton-cg", tol=1e-12, max_iter=1000
        ).fit(z_s, y_s)
        np.testing.assert_allclose(solution.probabilities[i], theirs.predict_proba(z_q), atol=1e-7)
        np.testing.assert_allclose(solution.prototypes[i], theirs.coef_, atol=1e-6)


def test_default_tolerance_of_distill_is_far_below_its_accuracy(embedded):
    tasks = _real(embedded, "distill", 5)
    default, exact = (
        solve(METHODS["distill"].solver.with_settings(tolerance=t), tasks) for t in (1e-6, 1e-12)
    )
    assert (default.probabilities - exact.probabilities).abs().max() < 1e-5
    assert default.n_steps.max() < 100


@pytest.mark.parametrize("name", ["baseline-sgd", "baseline++-sgd"])
def test_descent_is_that_of_pytorch(name, embedded):
    """The layers and the optimiser of the released code, from our initial weights."""
    tasks, solver = _real(embedded, name, 1), METHODS[name].solver.with_settings(n_steps=3)
    task = tasks[:1]
    state = solver.init(task)
    layer = torch.nn.Linear(task.dim, 5, bias=name == "baseline-sgd").double()
    with torch.no_grad():
        layer.weight.copy_(state.weights[0, :, : task.dim])
        if name == "baseline-sgd":
            layer.bias.copy_(state.weights[0, :, -1])
    if name == "baseline++-sgd":
        layer = torch.nn.utils.parametrizations.weight_norm(layer, dim=0)
    settings = {"lr": 0.01, "momentum": 0.9, "dampening": 0.9, "weight_decay": 0.001}
    optimizer = torch.optim.SGD(layer.parameters(), **settings)
    z, y = state.z[0, :, : task.dim], state.y[0].argmax(0)
    for epoch in range(3):
        order = torch.from_numpy(np.argsort(reference.bits(0, 3, epoch, 5)))
        for rows in (order[:4], order[4:]):
            loss = torch.nn.functional.cross_entropy(solver.temperature * layer(z[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    queries = (
        task.z_qry[0] if name == "baseline-sgd" else torch.nn.functional.normalize(task.z_qry[0])
    )
    expected = torch.softmax(solver.temperature * layer(queries), dim=-1).detach()
    torch.testing.assert_close(solve(solver, task).probabilities[0], expected, atol=1e-10, rtol=0)


def test_seed_changes_the_initial_weights_of_every_class():
    tasks = _tasks()
    first, second = (BaselineSgd(seed=seed).init(tasks).weights for seed in (0, 1))
    assert (first != second).all()
    assert first.abs().max() <= 6**-0.5
    rows = {tuple(row) for row in first[0].tolist()}
    assert rows == {tuple(row) for row in first[1].tolist()}  # the same, in the order of content
    assert len(rows) == 4


def test_a_single_query_joins_no_round():
    tasks, _ = gaussian_tasks(2, n_way=3, n_shot=2, n_query=1, dim=6, dtype=torch.float64)
    tasks = dataclasses.replace(tasks, z_qry=tasks.z_qry[:, :1])
    for plain, with_queries in ((Prototype(), PrototypeT()), (Matching(), MatchingT())):
        ours, theirs = solve(with_queries, tasks), solve(plain, tasks)
        torch.testing.assert_close(ours.probabilities, theirs.probabilities)


def test_confident_queries_move_a_poor_example_to_its_class():
    z_sup = torch.tensor([[[1.0, 0.4], [0.0, 1.0]]]).double()
    cluster = torch.tensor([[[1.0, 0.0], [0.98, 0.1], [0.99, -0.1], [0.0, 1.0], [0.1, 0.98]]])
    tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), cluster.double(), n_way=2)
    w = solve(PrototypeT(), tasks).prototypes[0]
    before = solve(Prototype(), tasks).prototypes[0]
    centre = cluster[0, :3].double().mean(0)
    assert (w[0] - centre).norm() < 0.5 * (before[0] - centre).norm()


def test_shuffled_support_and_renamed_classes_change_nothing_on_real_features(embedded):
    """Single precision and 25 samples, where ties in the order by content would show."""
    tasks = _real(embedded, "baseline-sgd", 5)
    tasks = dataclasses.replace(tasks, z_sup=tasks.z_sup.float(), z_qry=tasks.z_qry.float())
    solver = BaselineSgd(n_steps=3)
    p = solve(solver, tasks).probabilities
    order = torch.randperm(25, generator=torch.Generator().manual_seed(0))
    names = torch.tensor([3, 0, 4, 1, 2])
    other = dataclasses.replace(
        tasks, z_sup=tasks.z_sup[:, order], y_sup=names[tasks.y_sup[:, order]]
    )
    torch.testing.assert_close(solve(solver, other).probabilities[..., names], p)
