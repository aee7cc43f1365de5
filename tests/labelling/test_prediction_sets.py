"""Prediction sets: the conformal quantile, its coverage, and which classes are in a set."""

import math

import numpy as np
import pytest
import torch

from infoshot import InvalidArgumentError
from infoshot.labelling.calibrate import HeldOut
from infoshot.labelling.evidence import collect_evidence
from infoshot.labelling.prediction_sets import (
    choose_sets,
    count_needed,
    find_least,
    join_names,
    name_sets,
)


def held(probabilities, truth):
    n_way = probabilities.shape[1]
    return HeldOut(torch.arange(len(truth)), truth, probabilities, torch.full((n_way,), 1 / n_way))


def evidence_of(probabilities, truth):
    """Evidence in which every sample weighs the same: all classes equally often in both."""
    shares = truth.bincount(minlength=probabilities.shape[1]) / len(truth)
    return collect_evidence(held(probabilities, truth), shares)


def draw(n, seed, n_way=4, sharpness=2.0):
    """Probabilities, and classes drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(sharpness * torch.randn(n, n_way, generator=generator), -1)
    return p, torch.multinomial(p, 1, generator=generator).flatten()


@pytest.mark.parametrize("n", [9, 10, 25, 30, 99, 100])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_the_threshold_is_the_interpolated_conformal_quantile(n, coverage):
    rng = np.random.default_rng(n)
    p_truth = rng.random(n)
    rank = round((n + 1) * coverage, 9)
    scores = np.concatenate(([0.0], np.sort(1 - p_truth)))
    expected = 1 - np.interp(rank, np.arange(n + 1), scores) if math.ceil(rank) <= n else 0.0
    found = find_least(torch.from_numpy(p_truth), torch.ones(n), coverage)
    assert found == pytest.approx(expected, abs=1e-6)
    assert (math.ceil(rank) <= n) == (n >= count_needed(coverage))


def test_weights_count_like_copies():
    """Where the samples up to one of them have exactly the weight that is needed."""
    p_truth = torch.rand(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.tensor([1, 2, 3] * 4)
    copied = p_truth.repeat_interleave(weights)
    order = p_truth.argsort(descending=True)
    for j, reached in enumerate(weights[order].cumsum(0).tolist()):
        coverage = reached / (1 + len(copied))
        weighted = find_least(p_truth, weights, coverage)
        assert weighted == pytest.approx(float(p_truth[order[j]]), abs=1e-6)
        copies = find_least(copied, torch.ones(len(copied)), coverage)
        assert weighted == pytest.approx(copies, abs=1e-6)


@pytest.mark.parametrize("coverage", [0.8, 0.9])
@pytest.mark.parametrize("sharpness", [0.7, 2.0])
def test_exchangeable_images_are_covered(coverage, sharpness):
    """Also with probabilities that are not calibrated: the exponent is wrong on purpose."""
    covered = []
    for seed in range(300):
        p, truth = draw(89, seed, sharpness=sharpness)
        own = held(p[:29], truth[:29])
        evidence = collect_evidence(own, truth[:29].bincount(minlength=4) / 29)
        reported = torch.softmax(0.5 * p[29:].log(), -1)
        sets = choose_sets(evidence, 0.5, reported, coverage)
        covered.append(sets.members[torch.arange(60), truth[29:]].double().mean())
    mean = float(torch.stack(covered).mean())
    # About the coverage, and more where only the most probable class is in a set.
    assert coverage - 0.015 < mean < coverage + 0.05


@pytest.mark.parametrize(("n", "coverage"), [(25, 0.9), (25, 0.85), (19, 0.88)])
def test_the_coverage_is_not_rounded_up_to_the_next_example(n, coverage):
    """Without interpolation 25 examples cover 92.3 % where 90 % are asked for."""
    generator = torch.Generator().manual_seed(0)
    p_truth = torch.rand(20_000, n, generator=generator, dtype=torch.float64)
    least = torch.tensor([find_least(row, torch.ones(n), coverage) for row in p_truth])
    covered = float((1 - least).mean())  # of uniform scores, a share 1 - q is above q
    assert covered == pytest.approx(coverage, abs=0.002)
    assert math.ceil((n + 1) * coverage) / (n + 1) > coverage + 0.01


def test_sets_hold_the_label_first_and_every_class_above_the_threshold():
    p, truth = draw(40, seed=1)
    sets = choose_sets(evidence_of(p, truth), 1.0, p, 0.9)
    names = name_sets(sets, p, ("a", "b", "c", "d"))
    for row, own in zip(p, names, strict=True):
        order = row.argsort(descending=True).tolist()
        expected = ["abcd"[k] for k in order if row[k] >= sets.least] or ["abcd"[order[0]]]
        assert list(own) == expected
    assert sets.mean_size == pytest.approx(np.mean([len(own) for own in names]))
    assert sum(size * n for size, n in sets.count_sizes().items()) == sum(map(len, names))


def test_a_set_is_never_empty_except_without_probabilities():
    evidence = evidence_of(torch.eye(3)[torch.arange(30) % 3], torch.arange(30) % 3)
    p = torch.tensor([[0.4, 0.3, 0.3], [torch.nan] * 3])
    sets = choose_sets(evidence, 1.0, p, 0.9)
    assert sets.least == 1.0
    assert name_sets(sets, p, ("a", "b", "c")) == [("a",), ()]
    assert sets.mean_size == 1.0


def test_too_few_examples_give_every_class_and_say_so():
    p, truth = draw(8, seed=0)
    sets = choose_sets(evidence_of(p, truth), 1.0, p, 0.9)
    assert not sets.enough
    assert sets.members.all()
    assert sets.text() == (
        "Prediction sets with a coverage of 90% take 9 held-out examples or audited photos; got 8 "
        "held-out examples. Every class is in every set."
    )
    p, truth = draw(9, seed=0)
    assert choose_sets(evidence_of(p, truth), 1.0, p, 0.9).enough


def test_evidence_weighs_held_out_examples_by_class_shares():
    truth = torch.tensor([0, 0, 1, 1, 1])
    own = held(torch.full((5, 2), 0.5), truth)
    evidence = collect_evidence(own, torch.tensor([0.8, 0.2]))
    expected = np.array([0.4, 0.4, 0.2 / 3, 0.2 / 3, 0.2 / 3])
    np.testing.assert_allclose(evidence.weights, expected / expected.mean(), rtol=1e-6)
    more = collect_evidence(
        own, torch.tensor([0.8, 0.2]), torch.full((3, 2), 0.5), torch.tensor([1, 1, 0])
    )
    np.testing.assert_allclose(more.weights[5:], 1)
    assert more.weights.sum() == pytest.approx(8)
    assert more.text() == "5 held-out examples and 3 audited photos"


def test_no_held_out_example_is_no_evidence():
    nothing = held(torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    evidence = collect_evidence(nothing, torch.full((3,), 1 / 3))
    assert len(evidence) == 0
    sets = choose_sets(evidence, 1.0, torch.full((2, 3), 1 / 3), 0.9)
    assert sets.members.all()


def test_separators_in_names_are_escaped():
    assert join_names(("a|b", "a")) == r"a\x7cb|a"
    assert join_names(()) == ""


@pytest.mark.parametrize("wrong", [0, 1, -0.1, 90, math.nan, "0.9", True])
def test_wrong_coverage(wrong):
    p, truth = draw(20, seed=0)
    with pytest.raises(InvalidArgumentError, match="coverage must be above 0 and below 1; got"):
        choose_sets(evidence_of(p, truth), 1.0, p, wrong)
