"""Every other method against its reference in plain NumPy, task by task."""

import dataclasses

import numpy as np
import pytest
import torch

from infoshot import FeatureTable, TaskBatch, solve
from infoshot.benchmark import Protocol, score_cell
from infoshot.core.errors import IsolatedWarning
from infoshot.features import prepare
from infoshot.solvers import METHODS
from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.solvers.baselines.baseline import Baseline
from infoshot.solvers.baselines.baseline_plus_plus import BaselinePlusPlus
from infoshot.solvers.baselines.bavardage import Bavardage
from infoshot.solvers.baselines.bd_cspn import BdCspn
from infoshot.solvers.baselines.label_propagation import LabelPropagation
from infoshot.solvers.baselines.laplacianshot import LaplacianShot
from infoshot.solvers.baselines.matching import Matching
from infoshot.solvers.baselines.oslo import Oslo
from infoshot.solvers.baselines.ostim import Ostim
from infoshot.solvers.baselines.paddle import Paddle
from infoshot.solvers.baselines.pt_map import PtMap
from infoshot.solvers.baselines.soft_kmeans import SoftKMeans
from infoshot.tasks import TaskSpec, gaussian_tasks, sample_tasks
from infoshot.tasks.regimes import parse_regime
from tests.reference import methods_numpy as reference
from tests.reference import recent_numpy as recent

CASES = {
    "matching": (Matching(), reference.matching),
    "matching, sharp": (Matching(temperature=20.0), reference.matching),
    "baseline": (Baseline(), reference.baseline),
    "baseline, few steps": (Baseline(n_steps=7, temperature=3.0), reference.baseline),
    "baseline++": (BaselinePlusPlus(), reference.baseline_plus_plus),
    "label-propagation": (LabelPropagation(), reference.label_propagation),
    "label-propagation, published": (
        LabelPropagation(n_neighbours=20, propagation=0.99),
        reference.label_propagation,
    ),
    "label-propagation, sparse": (LabelPropagation(n_neighbours=2), reference.label_propagation),
    "laplacianshot": (LaplacianShot(), reference.laplacianshot),
    "laplacianshot, class means": (LaplacianShot(rectify=False), reference.laplacianshot),
    "laplacianshot, many neighbours": (
        LaplacianShot(n_neighbours=50, affinity_weight=0.3),
        reference.laplacianshot,
    ),
    "bd-cspn": (BdCspn(), reference.bd_cspn),
    "bavardage": (Bavardage(), recent.bavardage),
    "bavardage, other priors": (
        Bavardage(mean_weight=2.0, proportion_weight=0.5, n_start_steps=2, n_steps=9),
        recent.bavardage,
    ),
    "pt-map": (PtMap(), reference.pt_map),
    "pt-map, prior": (PtMap(class_prior=(0.4, 0.3, 0.2, 0.1)), reference.pt_map),
    "soft-kmeans": (SoftKMeans(), reference.soft_kmeans),
    "soft-kmeans, ten steps": (SoftKMeans(n_steps=10), reference.soft_kmeans),
    "paddle": (Paddle(), reference.paddle),
    "paddle, half the price": (Paddle(marginal_weight=3.5, temperature=10.0), reference.paddle),
    "oslo": (Oslo(), reference.oslo),
    "oslo, more steps": (Oslo(n_steps=5, inlier_temperature=5.0), reference.oslo),
    "ostim": (Ostim(n_steps=60, learning_rate=1e-2), reference.ostim),
    "alpha-tim": (AlphaTim(n_steps=60, learning_rate=1e-2), reference.alpha_tim),
    "alpha-tim, a = 7": (AlphaTim(n_steps=60, tsallis_alpha=7.0), reference.alpha_tim),
    "alpha-tim, a = 1": (AlphaTim(n_steps=60, tsallis_alpha=1.0), reference.alpha_tim),
    "alpha-tim, a = 0.5": (
        AlphaTim(n_steps=30, tsallis_alpha=0.5, conditional_entropy_weight=0.3),
        reference.alpha_tim,
    ),
}


def _tasks(kind):
    if kind == "one query":
        tasks, _ = gaussian_tasks(2, n_way=4, n_shot=2, n_query=1, dim=6, dtype=torch.float64)
        return dataclasses.replace(tasks, z_qry=tasks.z_qry[:, :1])
    n_query = 2
    tasks, _ = gaussian_tasks(
        2, n_way=4, n_shot=3, n_query=n_query, dim=6, separation=1.0, seed=5, dtype=torch.float64
    )
    keep = [0, 1, 2, 3, 4, 6, 9, 10]  # 3, 2, 1 and 2 examples
    return TaskBatch(tasks.z_sup[:, keep], tasks.y_sup[:, keep], tasks.z_qry[:, :7], 4)


def _compare(solver, slow, tasks, atol):
    solution = solve(solver, tasks)
    n_way = tasks.n_way
    for i in range(len(tasks)):
        arrays = (tasks.z_sup[i].numpy(), tasks.y_sup[i].numpy(), tasks.z_qry[i].numpy())
        settings = {k: v for k, v in solver.settings().items() if k != "tolerance"}
        expected = slow(*arrays, n_way, **settings)
        np.testing.assert_allclose(solution.probabilities[i], expected["p"], atol=atol)
        np.testing.assert_allclose(solution.prototypes[i], expected["w"], atol=atol)
        if "outlier" in expected:
            np.testing.assert_allclose(solution.outlier_scores[i], expected["outlier"], atol=atol)


@pytest.mark.parametrize("kind", ["unequal shots", "one query"])
@pytest.mark.parametrize("name", CASES)
def test_equals_its_reference(name, kind):
    # 4 classes and 7 queries: the reference's Sinkhorn converges slowly if they share a factor.
    _compare(*CASES[name], _tasks(kind), atol=1e-7)


@pytest.mark.parametrize("name", ["ostim", "alpha-tim"])
@pytest.mark.parametrize("n_way", [2, 5])
def test_gradients_of_the_references_equal_those_of_their_losses(name, n_way):
    key = name.replace("-", "_")
    loss, gradient = getattr(reference, f"{key}_loss"), getattr(reference, f"{key}_gradient")
    rng = np.random.default_rng(n_way)
    z_s, z_q, w = (rng.normal(size=(n, 4)) for n in (n_way, 7, n_way))
    task = (z_s, np.arange(n_way), z_q, n_way)
    expected = reference.finite_difference(lambda w: loss(w, *task), w)
    np.testing.assert_allclose(gradient(w, *task), expected, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(METHODS) & set(CASES)))
def test_equals_its_reference_on_real_features(name, embedded):
    method = METHODS[name]
    table = FeatureTable(prepare(embedded, method.preparation).double(), embedded.labels)
    tasks, _ = sample_tasks(table, TaskSpec(n_way=4, n_query=5, n_shot=2), 1)
    tasks = dataclasses.replace(tasks, z_qry=tasks.z_qry[:, :19])
    solver, slow = method.solver, CASES[name][1]
    if solver.n_steps > 100:
        solver = solver.with_settings(n_steps=40)
    _compare(solver, slow, tasks, atol=1e-6)


def test_alpha_one_is_tim_gd():
    tasks = _tasks("unequal shots")
    weights = {"cross_entropy_weight": 0.1, "conditional_entropy_weight": 0.1}
    ours = solve(AlphaTim(tsallis_alpha=1.0, **weights), tasks).probabilities
    torch.testing.assert_close(ours, solve(METHODS["tim-gd"].solver, tasks).probabilities)


def test_bavardage_needs_no_projection():
    # With equal scatter in all directions the projection changes no assignment; it is left out.
    rng = np.random.default_rng(0)
    task = rng.normal(size=(6, 9)), np.arange(6) % 3, rng.normal(size=(8, 9)), 3
    options = {"temperature": 1.0, "start_temperature": 1.0}
    projected, plain = (recent.bavardage(*task, **options, project=u)["p"] for u in (True, False))
    np.testing.assert_allclose(projected, plain, atol=1e-12)


def test_pt_map_gives_every_class_its_count():
    tasks, _ = gaussian_tasks(3, n_way=3, n_shot=1, n_query=10, dim=8, dtype=torch.float64)
    counts = solve(PtMap(class_prior=(3.0, 2.0, 1.0)), tasks).probabilities.sum(1)
    torch.testing.assert_close(counts, torch.tensor([[15.0, 10.0, 5.0]] * 3).double())


def test_isolated_queries_are_reported_and_get_no_class():
    # Two labelled pairs and two queries that are only each other's neighbours.
    z_sup = torch.tensor([[[1.0, 0, 0], [1.0, 0.1, 0], [0, 1.0, 0], [0.1, 1.0, 0]]])
    z_qry = torch.tensor([[[0.0, 0, 1], [0, 0, 1.1], [0.9, 0.0, 0.0]]])
    tasks = TaskBatch(z_sup, torch.tensor([[0, 0, 1, 1]]), z_qry, n_way=2)
    with pytest.warns(IsolatedWarning, match="2 queries of 1 tasks are not connected"):
        solution = solve(LabelPropagation(n_neighbours=1), tasks)
    assert solution.probabilities[0, :2].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert solution.outlier_scores[0, :2].tolist() == [1, 1]
    assert solution.probabilities[0, 2].argmax() == 0
    assert solution.notes == ("2 of 3 queries are not connected to any labelled sample.",)


def test_a_class_that_receives_no_query_keeps_its_examples():
    z_sup = torch.eye(3).unsqueeze(0)
    z_qry = torch.tensor([[[1.0, 0.1, 0], [0.9, 0, 0], [0.1, 1.0, 0], [0, 0.9, 0]]])
    tasks = TaskBatch(z_sup, torch.tensor([[0, 1, 2]]), z_qry, n_way=3)
    for name in ("soft-kmeans", "paddle", "oslo", "bd-cspn", "laplacianshot"):
        solver = METHODS[name].solver
        solution = solve(solver.with_settings(temperature=200.0), tasks)
        assert solution.probabilities.isfinite().all(), name
        assert solution.prototypes[0, 2].argmax() == 2, name


def test_open_set_methods_detect_outliers(embedded):
    spec = TaskSpec(n_shot=5, regime=parse_regime("open:25"))
    protocol = Protocol(spec=spec, n_tasks=100)
    plain = score_cell(embedded, METHODS["prototype"], protocol)[0].auroc
    assert score_cell(embedded, METHODS["oslo"], protocol)[0].auroc > plain + 2
