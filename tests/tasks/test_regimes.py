import pytest
import torch
from scipy import stats

from infoshot import DataError, FeatureTable, InvalidArgumentError
from infoshot.metrics import accuracy
from infoshot.tasks import TaskSampler, TaskSpec
from infoshot.tasks.regimes import Regime, _gamma, parse_regime

REGIMES = ["balanced", "dirichlet:2", "dirichlet:0.5", "effective:2", "effective:1", "few:5",
           "few:1", "few:200", "open:7", "open:19"]  # fmt: skip


@pytest.fixture(scope="module")
def table():
    """Nine classes of 230 samples in shuffled order, and some without a label."""
    labels = torch.cat((torch.arange(9).repeat_interleave(230), torch.full((50,), -1)))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    return FeatureTable(torch.rand(len(labels), 2), labels)


def _spec(regime, **changes):
    return TaskSpec(**{"n_way": 4, "n_shot": 3, "n_query": 5, "seed": 11, **changes},
                    regime=parse_regime(regime))  # fmt: skip


@pytest.mark.parametrize("regime", REGIMES)
def test_queries_are_of_their_classes_and_never_support(table, regime):
    sampler = TaskSampler(table, _spec(regime))
    support, query = sampler.draw(range(100))
    y_sup, y_qry = sampler.labels(range(100))
    parsed = parse_regime(regime)
    n_queries = int(parsed.value) if parsed.kind == "few" else 20
    assert query.shape == y_qry.shape == (100, n_queries)
    assert ((y_qry == -1).sum(1) == parsed.n_outliers()).all()
    for i in range(100):
        drawn = torch.cat((support[i], query[i]))
        assert drawn.unique().numel() == 12 + n_queries
        classes = table.labels[support[i]].view(4, 3)
        assert torch.equal(table.labels[support[i]], classes[:, 0][y_sup[i]])
        known = y_qry[i] >= 0
        assert torch.equal(table.labels[query[i][known]], classes[:, 0][y_qry[i][known]])
        outliers = table.labels[query[i][~known]]
        assert not set(outliers.tolist()) & set(classes[:, 0].tolist())
        assert (outliers >= 0).all()


@pytest.mark.parametrize("regime", REGIMES)
def test_task_depends_on_seed_and_index_only(table, regime):
    sampler = TaskSampler(table, _spec(regime))
    for draw in (sampler.draw, sampler.labels):
        whole = torch.cat(draw(range(60)), 1)
        parts = [torch.cat(draw(range(i, i + 7)), 1) for i in range(0, 56, 7)]
        assert torch.equal(whole[:56], torch.cat(parts))


def _counts(regime, n_tasks=20_000, n_way=5, n_query=15):
    return parse_regime(regime).counts(n_way, n_query, 3, torch.arange(n_tasks))


def test_effective_classes_are_random_and_have_equal_counts():
    counts = _counts("effective:2")
    assert ((counts > 0).sum(1) == 2).all()
    assert (counts.amax(1) == 38).all()
    assert (counts.sum(1) == 75).all()
    present = (counts > 0).double().mean(0)
    assert (present - 0.4).abs().max() < 5 * (0.4 * 0.6 / 20_000) ** 0.5


@pytest.mark.parametrize("a", [0.5, 2, 10])
def test_dirichlet_counts_have_their_moments(a):
    """Mean n/K and variance n p (1-p) (n + A) / (1 + A) with A = K a: Dirichlet-multinomial."""
    counts = _counts(f"dirichlet:{a}").double()
    total, p, concentration = 75, 1 / 5, 5 * a
    variance = total * p * (1 - p) * (total + concentration) / (1 + concentration)
    assert (counts.sum(1) == total).all()
    error = (variance / 20_000) ** 0.5
    assert (counts.mean(0) - 15).abs().max() < 5 * error
    assert counts.var(0).mean() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("a", [0.3, 1, 2, 7.5])
def test_gamma_variates_are_gamma(a):
    values = _gamma(a, 0, torch.arange(4000), 5)
    assert stats.kstest(values.flatten().numpy(), "gamma", args=(a,)).pvalue > 1e-3


def test_few_queries_are_uniform_over_the_classes():
    counts = _counts("few:3").double()
    assert (counts.sum(1) == 3).all()
    assert (counts.mean(0) - 0.6).abs().max() < 5 * (3 * 0.2 * 0.8 / 20_000) ** 0.5


def test_outliers_are_left_out_of_the_accuracy():
    probabilities = torch.eye(3).unsqueeze(0)[:, [0, 1, 2, 0]]
    labels = torch.tensor([[0, 1, 1, -1]])
    assert accuracy(probabilities, labels).tolist() == pytest.approx([2 / 3])


@pytest.mark.parametrize("text", ["", "skewed", "dirichlet", "balanced:2", "few:x", "open:"])
def test_unknown_regimes_are_refused(text):
    with pytest.raises(InvalidArgumentError, match="regime must be balanced, dirichlet:A"):
        parse_regime(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichlet:0", "regime 'dirichlet:0': A must be a number above 0"),
        ("effective:5", "regime 'effective:5': K must be from 1 to the 4 ways"),
        ("effective:1.5", "regime 'effective:1.5': K must be"),
        ("few:0", "N must be a whole number of at least 1"),
        ("open:20", "N must be from 1 to 19, below the 20 queries of a task"),
    ],
)
def test_impossible_regimes_are_refused(table, text, message):
    with pytest.raises(InvalidArgumentError, match=message):
        TaskSampler(table, _spec(text))


def test_regimes_that_the_table_cannot_provide_are_refused(table):
    message = r"'dirichlet:2' needs 920 queries from 4 classes; .* have 908 samples left"
    with pytest.raises(DataError, match=message):
        TaskSampler(table, _spec("dirichlet:2", n_query=230))
    with pytest.raises(
        DataError, match="'open:5' needs classes without support, but all 9 classes"
    ):
        TaskSampler(table, _spec("open:5", n_way=9))


def test_balanced_is_the_default():
    assert TaskSpec().regime == Regime()
    assert str(Regime()) == "balanced"
    assert str(parse_regime("dirichlet:2")) == "dirichlet:2"
