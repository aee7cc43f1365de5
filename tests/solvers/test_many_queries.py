"""One task with many queries: blocks of queries, cells of neighbours, and limits of memory."""

import threading

import pytest
import torch

from infoshot import InvalidArgumentError, TaskBatch, TimAdm, TimAuto, solve
from infoshot.core.types import FeatureTable
from infoshot.features import prepare
from infoshot.solvers import (
    METHODS,
    AlphaAm,
    LabelPropagation,
    LaplacianShot,
    MatchingT,
    adm_blocks,
    cells,
    neighbours,
)
from infoshot.tasks import gaussian_tasks
from tests.reference import tim_auto_numpy
from tests.reference import tim_numpy as paper
from tests.solvers.parity import BOTH, assert_parity


@pytest.fixture
def small_sizes(monkeypatch):
    """Treat a thousand queries as very many."""
    monkeypatch.setattr(adm_blocks, "_LEAST_QUERIES", 60)
    monkeypatch.setattr(neighbours, "_MOST_SEARCHED", 200)
    monkeypatch.setattr(neighbours, "_CANDIDATES", 128)
    monkeypatch.setattr(cells, "CELL_SIZE", 16)


def real_task(table, n_shot, n_way=5):
    """All images of some classes as one task, and the labels of the queries."""
    z, n_sup = prepare(table, "l2"), n_shot * n_way
    rows = [(table.labels == label).nonzero().flatten() for label in range(n_way)]
    sup, qry = torch.cat([r[:n_shot] for r in rows]), torch.cat([r[n_shot:] for r in rows])
    y_sup = torch.arange(n_way).repeat_interleave(n_shot)
    task = TaskBatch(z[sup].unsqueeze(0), y_sup.unsqueeze(0), z[qry].unsqueeze(0), n_way)
    assert task.n_sup == n_sup
    return task, table.labels[qry]


def smooth(z, n_neighbours):
    near = neighbours.find_neighbours(z, n_neighbours)
    return neighbours.average_with_neighbours(z, near, 0.3)


SOLVERS = {
    "tim-adm": TimAdm(n_steps=20),
    "tim-auto": TimAuto(n_steps=20, n_trial_steps=10),
    "stopped early": TimAdm(tolerance=0.01),
    "a prior": TimAdm(n_steps=20, class_prior=[4.0, 2.0, 1.0]),
    "no support term": TimAdm(n_steps=20, cross_entropy_weight=0.0),
    "without the linearised term": TimAdm(n_steps=20, linearized=False),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_results_do_not_depend_on_the_number_of_threads(solver, small_sizes):
    task, _ = gaussian_tasks(1, n_way=3, n_query=333, dim=16, separation=1.0)
    one, *others = (solve(solver, task, n_threads=n) for n in (1, 2, 3))
    for other in others:
        assert torch.equal(other.probabilities, one.probabilities)
        assert torch.equal(other.prototypes, one.prototypes)
        assert torch.equal(other.outlier_scores, one.outlier_scores)
    traced = solve(solver, task, n_threads=2, record_trace=True)
    assert torch.equal(traced.probabilities, one.probabilities)


def test_threads_share_one_large_task_and_use_one_core_each(monkeypatch):
    task, _ = gaussian_tasks(1, n_way=2, n_query=4100, dim=8)
    log_softmax, both, seen = torch.log_softmax, threading.Barrier(2), set()

    def watched(*arguments, **settings):
        assert torch.get_num_threads() == 1, "threads of PyTorch wait for each other by spinning"
        if len(seen) < 2:
            seen.add(threading.get_ident())
            both.wait(timeout=60)
        return log_softmax(*arguments, **settings)

    monkeypatch.setattr(torch, "log_softmax", watched)
    solve(TimAdm(n_steps=3), task, n_threads=2)
    assert len(seen) == 2


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_blocks_change_nothing_but_rounding(solver, monkeypatch):
    tasks, _ = gaussian_tasks(3, n_way=3, n_query=100, dim=16, dtype=torch.float64)
    whole = solve(solver, tasks)
    monkeypatch.setattr(adm_blocks, "_LEAST_QUERIES", 30)
    for chunk_size in (1, 3):
        parts = solve(solver, tasks, chunk_size=chunk_size)
        assert parts.n_steps.tolist() == whole.n_steps.tolist()
        torch.testing.assert_close(parts.probabilities, whole.probabilities, atol=1e-9, rtol=0)
        torch.testing.assert_close(parts.prototypes, whole.prototypes, atol=1e-9, rtol=0)


def test_blocks_equal_the_paper(small_sizes):
    tasks, _ = gaussian_tasks(2, n_way=3, n_query=130, dim=12, seed=3, dtype=torch.float64)
    assert len(TimAdm().init(tasks).blocks) == 4
    assert_parity(TimAdm(n_steps=10), tasks, paper.tim_adm, BOTH, n_steps=10)


@pytest.mark.parametrize(("n_qry", "n_blocks"), [(4095, 1), (4096, 2), (20_000, 8), (70_000, 32)])
def test_number_of_blocks_depends_on_the_queries_only(n_qry, n_blocks):
    z = torch.zeros(1, 1, 2).expand(1, n_qry, 2)
    task = TaskBatch(torch.eye(2).unsqueeze(0), torch.tensor([[0, 1]]), z, 2)
    assert adm_blocks.n_blocks(task) == n_blocks


@pytest.mark.parametrize(("n", "n_neighbours"), [(1024, 8), (1025, 8), (1030, 200), (1024, 5000)])
def test_products_of_pairs_of_parts_find_the_nearest_of_all(n, n_neighbours):
    z = torch.randn((2, n, 6), generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    smoothed = smooth(z, n_neighbours)
    for samples, found in zip(z, smoothed, strict=True):
        distances = torch.cdist(samples, samples, compute_mode="donot_use_mm_for_euclid_dist")
        distances.fill_diagonal_(torch.inf)
        near = distances.topk(min(n_neighbours, n - 1), largest=False)
        shares = torch.softmax(-10 * near.values**2, dim=1)
        mixed = 0.7 * samples + 0.3 * (shares.unsqueeze(2) * samples[near.indices]).sum(1)
        length = samples.norm(dim=1, keepdim=True)
        expected = mixed * length / mixed.norm(dim=1, keepdim=True)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_neighbours_of_very_many_queries_take_linear_time(monkeypatch):
    compared, topk = [], torch.Tensor.topk

    def counted(self, *arguments, **settings):
        compared.append(self.numel())
        return topk(self, *arguments, **settings)

    monkeypatch.setattr(torch.Tensor, "topk", counted)
    task, _ = gaussian_tasks(1, n_way=2, n_query=15_000, dim=4)
    solve(TimAuto(n_steps=1, n_trial_steps=1), task)
    assert sum(compared) <= 1.05 * 8192 * 30_000


def test_neighbours_in_cells_give_the_labels_of_an_exact_search(embedded, monkeypatch):
    task, labels = real_task(embedded, n_shot=5)
    exact = solve(TimAuto(), task).probabilities[0]
    monkeypatch.setattr(neighbours, "_MOST_SEARCHED", 1000)
    monkeypatch.setattr(neighbours, "_CANDIDATES", 500)  # of 2,975
    monkeypatch.setattr(cells, "CELL_SIZE", 31)
    near = solve(TimAuto(), task).probabilities[0]
    assert not torch.equal(near, exact)
    assert (near.argmax(1) == exact.argmax(1)).double().mean() > 0.96
    right_exact, right_near = (
        (p.argmax(1) == labels).double().mean().item() for p in (exact, near)
    )
    without = solve(TimAuto(smoothing=0.0), task).probabilities[0]
    assert right_near > right_exact - 0.005
    assert right_near > (without.argmax(1) == labels).double().mean().item()


def test_smoothing_in_cells_equals_its_reference_where_all_are_candidates(monkeypatch):
    task, _ = gaussian_tasks(2, n_way=3, n_query=40, dim=6, seed=2, dtype=torch.float64)
    monkeypatch.setattr(neighbours, "_MOST_SEARCHED", 10)
    monkeypatch.setattr(cells, "CELL_SIZE", 16)
    smoothed = smooth(task.z_qry, 8)
    for ours, z in zip(smoothed, task.z_qry, strict=True):
        expected = torch.from_numpy(tim_auto_numpy.smooth(z.numpy(), 0.3, 8))
        torch.testing.assert_close(ours, expected, atol=1e-9, rtol=0)


def test_cells_hold_every_sample_once_and_candidates_are_near(embedded):
    z = prepare(embedded, "l2")[:6000]
    found = cells.group_samples(z, 8)
    assert found.order.sort().values.equal(torch.arange(6000))
    assert found.edges[0] == 0
    assert found.edges[-1] == 6000
    assert all(end > start for start, end in zip(found.edges, found.edges[1:], strict=False))
    hits = 0
    for cell, near in enumerate(found.near):
        assert near[0] == cell
        candidates = found.candidates(cell, 2000)
        assert len(candidates) == 2000
        own = found.order[found.edges[cell] : found.edges[cell + 1]][:20]
        nearest = torch.cdist(z[own], z).topk(9, largest=False).indices[:, 1:]
        hits += int(torch.isin(nearest, candidates).sum())
    assert hits / (len(found.near) * 20 * 8) > 0.8  # a third of the samples would give 0.33


@pytest.mark.parametrize("n_different", [1, 2, 30])
def test_equal_queries_are_smoothed_to_themselves(n_different, small_sizes):
    generator = torch.Generator().manual_seed(0)
    few = torch.nn.functional.normalize(torch.randn(n_different, 8, generator=generator), dim=1)
    z = few[torch.arange(600) % n_different].unsqueeze(0)
    smoothed = smooth(z, 8)
    torch.testing.assert_close(smoothed, z, atol=1e-6, rtol=0)


def test_more_neighbours_than_candidates_are_all_of_them(small_sizes):
    task, _ = gaussian_tasks(1, n_way=3, n_query=100, dim=8)
    smoothed = smooth(task.z_qry, 5000)
    assert smoothed.isfinite().all()


QUADRATIC = [LabelPropagation(), LaplacianShot(), MatchingT(), AlphaAm(), TimAdm(form="gram")]


@pytest.mark.parametrize("solver", QUADRATIC, ids=lambda solver: type(solver).__name__)
def test_tasks_that_need_more_memory_than_there_is_are_refused(solver):
    z = torch.eye(2).repeat(1_000_000, 1).unsqueeze(0)
    task = TaskBatch(z[:, :2], torch.tensor([[0, 1]]), z, 2)
    message = r"needs about [0-9,]+ GB of memory for one task of 2,000,002 samples, and this mach"
    with pytest.raises(InvalidArgumentError, match=message):
        solve(solver, task)


def test_linear_methods_are_not_refused():
    z = torch.eye(2).repeat(1_000_000, 1).unsqueeze(0)
    task = TaskBatch(z[:, :2], torch.tensor([[0, 1]]), z, 2)
    for name, method in METHODS.items():
        if type(method.solver) not in {type(quadratic) for quadratic in QUADRATIC[:-1]}:
            assert method.solver.working_set(task) < 1e9, name


def test_features_of_several_tasks_are_smoothed_independently(small_sizes):
    tasks, _ = gaussian_tasks(2, n_way=3, n_query=100, dim=8)
    together = solve(TimAuto(n_steps=5), tasks, chunk_size=2).probabilities
    alone = solve(TimAuto(n_steps=5), tasks, chunk_size=1).probabilities
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_table_is_not_changed(embedded, small_sizes):
    table = FeatureTable(embedded.features.clone(), embedded.labels)
    task, _ = real_task(table, n_shot=1, n_way=3)
    before = task.z_qry.clone()
    solve(TimAuto(n_steps=3, n_trial_steps=3), task)
    assert torch.equal(task.z_qry, before)
