"""Tasks from classes with fewer samples than a regime asks of them."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from infoshot import DataError, FeatureTable
from infoshot.tasks import TaskSampler, TaskSpec
from infoshot.tasks.regimes import move_excess, parse_regime

RECORDED = json.loads(Path(__file__).with_name("recorded_tasks.json").read_text())


def _table(*sizes):
    labels = torch.cat([torch.full((size,), k) for k, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    return FeatureTable(torch.zeros(len(labels), 2), labels)


@pytest.fixture(scope="module")
def birds():
    """Ten classes of 41 to 60 samples, as in CUB."""
    return _table(41, 44, 46, 48, 50, 52, 54, 56, 58, 60)


def _spec(regime, **changes):
    return TaskSpec(**{"n_shot": 5, "seed": 11, **changes}, regime=parse_regime(regime))


# The recording was made by commit 027b569, before counts could be limited.
@pytest.mark.parametrize("case", RECORDED)
def test_classes_with_enough_samples_give_the_recorded_tasks(case):
    regime, shots = case.split()
    labels = torch.cat((torch.arange(9).repeat_interleave(230), torch.full((50,), -1)))
    labels = labels[(torch.arange(len(labels)) * 7919) % len(labels)]
    spec = _spec(regime, n_way=4, n_shot=int(shots[0]), n_query=5)
    sampler = TaskSampler(FeatureTable(torch.zeros(len(labels), 2), labels), spec)
    support, query = sampler.draw(range(300))
    assert support[0].tolist() == RECORDED[case]["support_of_task_0"]
    assert query[0].tolist()[:20] == RECORDED[case]["query_of_task_0"]
    drawn = torch.cat((support, query, sampler.labels(range(300))[1]), 1).contiguous()
    assert hashlib.sha256(drawn.numpy().tobytes()).hexdigest() == RECORDED[case]["sha256"]
    assert not sampler.moved_queries(range(300)).any()


@pytest.mark.parametrize(
    ("spec", "n_queries"),
    [
        (_spec("dirichlet:2"), 75),
        (_spec("dirichlet:0.3"), 75),
        (_spec("dirichlet:0.001"), 75),
        (_spec("effective:2"), 75),
        (_spec("few:160"), 160),
        (_spec("open:190", n_query=50), 250),
    ],
)
def test_tasks_are_whole_and_valid(birds, spec, n_queries):
    sampler = TaskSampler(birds, spec)
    assert sampler.moved_queries(range(400)).any()
    support, query = sampler.draw(range(400))
    y_sup, y_qry = sampler.labels(range(400))
    assert query.shape == y_qry.shape == (400, n_queries)
    for i in range(400):
        assert torch.cat((support[i], query[i])).unique().numel() == support.shape[1] + n_queries
        classes = birds.labels[support[i]].view(5, -1)[:, 0]
        assert torch.equal(birds.labels[support[i]], classes[y_sup[i]])
        known = y_qry[i] >= 0
        assert torch.equal(birds.labels[query[i][known]], classes[y_qry[i][known]])
        assert not set(birds.labels[query[i][~known]].tolist()) & set(classes.tolist())
    if spec.regime.kind == "effective":
        assert all(row.unique().numel() == 2 for row in y_qry)


def test_counts_change_only_where_a_class_is_too_small(birds):
    sampler, spec = TaskSampler(birds, _spec("dirichlet:0.5")), _spec("dirichlet:0.5")
    wanted = spec.regime.counts(5, 15, spec.seed, torch.arange(300))
    support, _ = sampler.draw(range(300))
    sizes = birds.labels.bincount()[birds.labels[support].view(300, 5, 5)[..., 0]]
    y_qry = sampler.labels(range(300))[1]
    counts = (y_qry.unsqueeze(-1) == torch.arange(5)).sum(1)
    fits = (wanted <= sizes - 5).all(1)
    assert 0 < int(fits.sum()) < 300
    assert torch.equal(counts[fits], wanted[fits])
    assert (counts <= sizes - 5).all()
    above = (wanted - (sizes - 5)).clamp(min=0).sum(1)
    assert (above[~fits] > 0).all()
    assert torch.equal(sampler.moved_queries(range(300)), above)


def test_task_depends_on_seed_and_index_only(birds):
    sampler = TaskSampler(birds, _spec("dirichlet:0.5"))
    whole = torch.cat(sampler.draw(range(60)), 1)
    parts = [torch.cat(sampler.draw(range(i, i + 7)), 1) for i in range(0, 56, 7)]
    assert torch.equal(whole[:56], torch.cat(parts))
    moved = [sampler.moved_queries(range(i, i + 1)) for i in range(60)]
    assert torch.equal(sampler.moved_queries(range(60)), torch.cat(moved))


def test_every_sample_of_a_small_class_is_drawn_equally_often():
    table = _table(12, 200, 200, 200)
    sampler = TaskSampler(table, _spec("few:100", n_way=4, n_shot=2))
    support, query = sampler.draw(range(6000))
    small = table.labels == 0
    # The class has 10 samples left after its support, and all tasks draw all of them.
    for part, per_task in ((support, 2), (query, 10)):
        counts = part.flatten().bincount(minlength=len(table.labels))[small].double()
        expected = 6000 * per_task / 12
        assert counts.sum() == 6000 * per_task
        assert (counts - expected).abs().max() < 5 * expected**0.5


def _move_excess_one_task(counts, shares, limits):
    """The definition, for one task, in plain loops."""
    total, counts = sum(counts), [min(pair) for pair in zip(counts, limits, strict=True)]
    while excess := total - sum(counts):
        free = [k for k in range(len(counts)) if counts[k] < limits[k]]
        quota = {k: excess * (shares[k] / sum(shares[j] for j in free)) for k in free}
        extra = {k: int(quota[k]) for k in free}
        order = sorted(free, key=lambda k: extra[k] - quota[k])
        for k in order[: excess - sum(extra.values())]:
            extra[k] += 1
        for k in free:
            counts[k] = min(counts[k] + extra[k], limits[k])
    return counts


def test_excess_moves_in_proportion_to_the_shares():
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 40, (500, 5), generator=generator)
    limits = torch.randint(0, 30, (500, 5), generator=generator)
    limits[:, 0] += 200  # every task can be drawn
    shares = torch.rand(500, 5, generator=generator, dtype=torch.float64)
    moved = move_excess(counts, shares, limits)
    assert torch.equal(moved.sum(1), counts.sum(1))
    for i in range(500):
        expected = _move_excess_one_task(counts[i].tolist(), shares[i].tolist(), limits[i].tolist())
        assert moved[i].tolist() == expected


def test_a_class_without_share_is_used_when_no_other_has_samples_left():
    counts, limits = torch.tensor([[9, 0, 0]]), torch.tensor([[4, 3, 9]])
    moved = move_excess(counts, torch.tensor([[1.0, 0.0, 0.0]]), limits)
    assert moved.tolist() == [[4, 3, 2]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_spec("balanced", n_query=40), r"n_shot \+ n_query must be at most 41 .*got 5 \+ 40"),
        (_spec("effective:1"), r"'effective:1' needs 75 queries from 1 classes; the smallest 1 "
                               r"have 36 samples left after n_shot = 5"),
        (_spec("dirichlet:2", n_query=41), r"needs 205 queries from 5 classes; the smallest 5 have "
                                           r"204 samples left after n_shot = 5"),
        (_spec("open:300", n_way=5, n_query=80), r"needs 300 queries from 5 classes"),
        (_spec("few:3", n_shot=42), r"n_shot must be at most 41 for class '0' .*; got 42"),
    ],
)  # fmt: skip
def test_tasks_that_cannot_be_drawn_are_refused(birds, spec, message):
    with pytest.raises(DataError, match=message):
        TaskSampler(birds, spec)
