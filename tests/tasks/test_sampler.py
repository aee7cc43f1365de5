import pytest
import torch

from infoshot import DataError, FeatureTable, InvalidArgumentError
from infoshot.tasks import TaskSampler, TaskSpec, gaussian_tasks, sample_tasks


@pytest.fixture
def table():
    """Seven classes of 8 to 14 samples in shuffled order, and some without a label."""
    labels = torch.cat([torch.full((8 + k,), k) for k in range(7)] + [torch.full((20,), -1)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    features = torch.stack([labels.float(), torch.arange(len(labels)).float()], 1)
    return FeatureTable(features, labels)


SPEC = TaskSpec(n_way=4, n_shot=3, n_query=5, seed=11)


def test_support_and_queries_are_disjoint_and_of_the_right_classes(table):
    sampler = TaskSampler(table, SPEC)
    support, query = sampler.draw(range(200))
    y_sup, y_qry = sampler.labels(range(200))
    for i in range(200):
        assert len(set(support[i].tolist()) | set(query[i].tolist())) == 4 * (3 + 5)
        classes = table.labels[support[i]].view(4, 3)
        assert (classes == classes[:, :1]).all()
        assert classes[:, 0].unique().numel() == 4
        assert (classes >= 0).all()
        assert torch.equal(table.labels[query[i]], classes[:, 0][y_qry[i]])
        assert torch.equal(table.labels[support[i]], classes[:, 0][y_sup[i]])


def test_task_depends_on_seed_and_index_only(table):
    sampler = TaskSampler(table, SPEC)
    all_at_once = torch.cat(sampler.draw(range(100)), 1)
    in_chunks = torch.cat([torch.cat(sampler.draw(range(i, i + 7)), 1) for i in range(0, 98, 7)])
    assert torch.equal(all_at_once[:98], in_chunks)
    assert torch.equal(all_at_once[63:64], torch.cat(sampler.draw(range(63, 64)), 1))
    other = TaskSampler(table, TaskSpec(n_way=4, n_shot=3, n_query=5, seed=12))
    assert not torch.equal(all_at_once, torch.cat(other.draw(range(100)), 1))


def test_any_range_of_tasks_can_be_drawn(table):
    sampler = TaskSampler(table, SPEC)
    assert torch.equal(sampler.draw(range(0, 10, 3))[0], sampler.draw(range(10))[0][::3])


def test_every_class_and_every_sample_is_drawn_equally_often(table):
    sampler = TaskSampler(table, TaskSpec(n_way=4, n_shot=1, n_query=1, seed=3))
    support, query = sampler.draw(range(14_000))
    counts = torch.cat([support, query], 1).flatten().bincount(minlength=len(table.labels))
    assert (counts[table.labels < 0] == 0).all()
    for k in range(7):
        of_class = counts[table.labels == k].double()
        # Each class is in 4 of 7 tasks with two samples; the tolerance is five standard deviations.
        expected = 14_000 * 4 / 7 * 2 / len(of_class)
        assert (of_class - expected).abs().max() < 5 * expected**0.5
    roles = torch.stack(
        [part.flatten().bincount(minlength=len(counts)) for part in (support, query)]
    )
    assert (roles[0] - roles[1]).abs().max() < 6 * roles.double().mean() ** 0.5


def test_features_match_the_drawn_positions(table):
    tasks, labels = sample_tasks(table, SPEC, n_tasks=3, start=40)
    support, query = TaskSampler(table, SPEC).draw(range(40, 43))
    assert torch.equal(tasks.z_sup, table.features[support])
    assert torch.equal(tasks.z_qry, table.features[query])
    assert labels.shape == (3, 20)
    assert not hasattr(tasks, "y_qry")


def test_too_few_samples_names_the_class(table):
    named = FeatureTable(table.features, table.labels, class_names=tuple("abcdefg"))
    message = r"n_shot \+ n_query must be at most 8 for class 'a' \(it has 8 samples\); got 1 \+ 25"
    with pytest.raises(DataError, match=message):
        sample_tasks(named, TaskSpec(n_way=5, n_query=25), 1)
    with pytest.raises(DataError, match=r"for class '0'"):
        sample_tasks(table, TaskSpec(n_way=5, n_query=25), 1)


def test_too_many_ways_is_refused(table):
    with pytest.raises(DataError, match=r"n_way must be at most 7, the number of classes.*got 8"):
        sample_tasks(table, TaskSpec(n_way=8), 1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TaskSpec(n_way=1), "n_way must be a whole number of at least 2; got 1"),
        (TaskSpec(n_shot=0), "n_shot must be a whole number of at least 1; got 0"),
        (TaskSpec(n_query=0), "n_query must be a whole number of at least 1; got 0"),
        (TaskSpec(seed=-1), "seed must be a whole number of at least 0; got -1"),
        (TaskSpec(seed=2**63), "seed must be at most 9223372036854775807"),
    ],
)
def test_bad_specifications_are_named(table, spec, message):
    with pytest.raises(InvalidArgumentError, match=message):
        sample_tasks(table, spec, 1)


def test_gaussian_tasks_are_of_unit_length_and_separable():
    tasks, labels = gaussian_tasks(2, n_way=3, n_shot=2, n_query=4, dim=10)
    torch.testing.assert_close(tasks.z_qry.norm(dim=-1), torch.ones(2, 12))
    assert tasks.y_sup[0].tolist() == [0, 0, 1, 1, 2, 2]
    assert labels.shape == (2, 12)
