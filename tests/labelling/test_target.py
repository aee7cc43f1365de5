"""Choosing the labels that can be expected to be correct at a rate."""

import math

import numpy as np
import pytest
import torch

from infoshot import InvalidArgumentError
from infoshot.labelling.calibrate import HeldOut
from infoshot.labelling.evidence import collect_evidence
from infoshot.labelling.target import CERTAINTY, choose_confident, weigh_exponents


def evidence_of(probabilities, truth):
    shares = truth.bincount(minlength=probabilities.shape[1]) / len(truth)
    held_out = HeldOut(torch.arange(len(truth)), truth, probabilities, shares)
    return collect_evidence(held_out, shares)


def draw(n, seed, exponent=1.0, n_way=5):
    """Reported probabilities, and classes that are drawn from their power."""
    generator = torch.Generator().manual_seed(seed)
    reported = torch.softmax(4 * torch.randn(n, n_way, generator=generator), -1)
    true = torch.softmax(exponent * reported.log(), -1)
    return reported, torch.multinomial(true, 1, generator=generator).flatten()


def choose(seed, rate=0.95, exponent=1.0, n_evidence=25, n_images=200):
    p, truth = draw(n_evidence + n_images, seed, exponent)
    evidence = evidence_of(p[:n_evidence], truth[:n_evidence])
    p, truth = p[n_evidence:], truth[n_evidence:]
    confidence, guess = p.max(-1)
    target = choose_confident(evidence, p, confidence, rate)
    chosen = confidence >= target.cutoff
    assert int(chosen.sum()) == target.n_images
    correct = (guess == truth)[chosen].double()
    return target, float(correct.mean()) if target.n_images else math.nan


def test_the_posterior_and_the_chance_follow_their_formulas():
    """An independent version in NumPy, with the normal distribution as an error function."""
    p, truth = draw(60, seed=3)
    evidence = evidence_of(p[:20], truth[:20])
    exponents = np.logspace(-0.7, 1.3, 81)
    log_posterior = []
    for exponent in exponents:
        powers = p[:20].double().numpy() ** exponent
        own = (powers / powers.sum(1, keepdims=True))[np.arange(20), truth[:20].numpy()]
        likelihood = (evidence.weights.numpy() * np.log(own)).sum()
        log_posterior.append(likelihood - np.log(1 + (np.log(exponent) / 0.25) ** 2))
    posterior = np.exp(np.array(log_posterior) - max(log_posterior))
    posterior /= posterior.sum()
    np.testing.assert_allclose(weigh_exponents(evidence), posterior, atol=1e-9)

    confidence = p[20:].amax(-1)
    target = choose_confident(evidence, p[20:], confidence, 0.8)
    order = np.argsort(-confidence.numpy(), kind="stable")
    chances = []
    for n in range(1, 41):
        chance = 0.0
        for exponent, weight in zip(exponents, posterior, strict=True):
            powers = p[20:].double().numpy()[order[:n]] ** exponent
            own = (powers / powers.sum(1, keepdims=True)).max(1)
            z = (own.sum() - 0.8 * n) / np.sqrt(max((own * (1 - own)).sum(), 1e-30))
            chance += weight * (1 + math.erf(z / math.sqrt(2))) / 2
        chances.append(chance)
    largest = max(n for n, chance in enumerate(chances, 1) if chance >= CERTAINTY)
    assert target.n_images == largest
    assert target.certainty == pytest.approx(chances[largest - 1], abs=2e-3)


@pytest.mark.parametrize("rate", [0.8, 0.95])
def test_the_target_is_reached_in_nine_of_ten_pools(rate):
    """Over pools whose confidences are as far off as the prior says."""
    exponents = np.exp((0.25 * np.random.default_rng(0).standard_cauchy(300)).clip(-1.5, 1.5))
    results = [choose(seed, rate, exponent) for seed, exponent in enumerate(exponents)]
    kept = [accuracy >= rate for target, accuracy in results if target.n_images]
    assert len(kept) > 150
    assert np.mean(kept) >= 0.87  # 90 % less two standard errors


def test_the_target_is_reached_if_confidences_are_too_low():
    results = [choose(seed, exponent=1.5) for seed in range(100)]
    assert np.mean([target.n_images == 0 or right >= 0.95 for target, right in results]) > 0.95


def test_more_evidence_labels_more_images():
    few, many = (
        np.mean([choose(seed, exponent=1.3, n_evidence=n)[0].n_images for seed in range(40)])
        for n in (15, 400)
    )
    assert many > 1.2 * few


def test_evidence_of_errors_at_high_confidence_lowers_the_number():
    p, _ = draw(225, seed=0)
    good = choose_confident(evidence_of(p[:25], p[:25].argmax(-1)), p[25:], p[25:].amax(-1), 0.95)
    wrong = p[:25].argsort(-1)[:, -2]
    bad = choose_confident(evidence_of(p[:25], wrong), p[25:], p[25:].amax(-1), 0.95)
    assert bad.n_images < good.n_images
    assert bad.n_images == 0
    assert bad.text() == (
        "No labels can be expected to be 95% correct with a probability of 90%, judged by 25 "
        "held-out examples."
    )


def test_a_higher_rate_labels_fewer_images():
    numbers = [choose(1, rate=rate)[0].n_images for rate in (0.7, 0.8, 0.9, 0.95, 0.99)]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] > numbers[-1]


def test_images_of_equal_confidence_are_chosen_together():
    p, truth = draw(100, seed=0)
    same = torch.full((50, 5), 0.01)
    same[:, 0] = 0.96
    target = choose_confident(evidence_of(p, truth), same, same.amax(-1), 0.9)
    assert target.n_images in (0, 50)


def test_too_little_evidence_labels_nothing():
    target, _ = choose(0, n_evidence=9)
    assert target.n_images == 0
    assert target.cutoff == math.inf
    assert target.text() == (
        "No labels can be expected to be 95% correct: that takes 10 held-out examples or audited "
        "photos; got 9 held-out examples."
    )


def test_no_images():
    p, truth = draw(25, seed=0)
    target = choose_confident(evidence_of(p, truth), torch.empty(0, 5), torch.empty(0), 0.95)
    assert (target.n_images, target.n_candidates) == (0, 0)


def test_the_sentence_has_the_numbers():
    target, _ = choose(0)
    assert target.text() == (
        f"{target.n_images} of 200 labels can be expected to be at least 95% correct (with a "
        f"probability of {target.certainty:.0%}; the expected value is {target.expected:.1%}), "
        "judged by 25 held-out examples."
    )
    assert target.certainty >= CERTAINTY
    assert target.expected > 0.95


@pytest.mark.parametrize("wrong", [0, 1, 95, math.inf, None, "0.95"])
def test_wrong_target(wrong):
    with pytest.raises(InvalidArgumentError, match="target must be above 0 and below 1; got"):
        choose(0, rate=wrong)
