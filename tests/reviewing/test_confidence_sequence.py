"""The lower bound of the number of correct labels, against exact slow references."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from infoshot.reviewing.confidence_sequence import bound_correct, forecast_sample_size, spend

_A, _B = Fraction(30), Fraction(1, 2)


def _probability(sequence: list[bool], n_photos: int, n_correct: int) -> Fraction:
    """Probability of a sequence of draws without replacement, draw by draw."""
    p, right, wrong = Fraction(1), n_correct, n_photos - n_correct
    for is_correct in sequence:
        p *= Fraction(right if is_correct else wrong, right + wrong)
        right, wrong = right - is_correct, wrong - (not is_correct)
    return p


def _prior(n_photos: int) -> list[Fraction]:
    """Beta-binomial probabilities of all numbers of correct labels, by Pólya's urn."""
    mass = [Fraction(1)]
    for n in range(n_photos):
        grown = [Fraction(0)] * (n + 2)
        for m, p in enumerate(mass):
            grown[m + 1] += p * (_A + m) / (_A + _B + n)
            grown[m] += p * (_B + n - m) / (_A + _B + n)
        mass = grown
    return mass


def _reference_bound(n_photos: int, n: int, s: int, error_probability: Fraction) -> int:
    """Smallest number whose prior is below ``1 / error_probability`` times its posterior."""
    prior = _prior(n_photos)
    sequence = [True] * s + [False] * (n - s)
    likelihood = [_probability(sequence, n_photos, m) for m in range(n_photos + 1)]
    evidence = sum(p * q for p, q in zip(prior, likelihood, strict=True))
    return next(m for m, q in enumerate(likelihood) if q and evidence / q < 1 / error_probability)


@pytest.mark.parametrize("error_probability", [Fraction(1, 20), Fraction(1, 80), Fraction(1, 3)])
@pytest.mark.parametrize("n_photos", [1, 2, 5, 14, 40])
def test_bound_equals_exact_rational_computation(n_photos, error_probability):
    step = 1 if n_photos < 20 else 7
    for n in range(0, n_photos + 1, step):
        for s in range(0, n + 1, 1 if n_photos < 20 else 3):
            expected = _reference_bound(n_photos, n, s, error_probability)
            assert bound_correct(n_photos, n, s, float(error_probability)) == expected


@pytest.mark.parametrize("error_probability", [0.2, 0.05, 0.0125])
@pytest.mark.parametrize("n_photos", [1, 5, 40, 90])
def test_bound_ever_exceeds_the_truth_with_at_most_the_error_probability(
    n_photos, error_probability
):
    bounds = {
        (n, s): bound_correct(n_photos, n, s, error_probability)
        for n in range(n_photos + 1)
        for s in range(n + 1)
    }
    failures = [_probability_of_failure(n_photos, m, bounds) for m in range(n_photos + 1)]
    assert max(failures) <= error_probability
    if n_photos == 90:
        assert max(failures) > error_probability / 4  # it is not wastefully low either


def _probability_of_failure(n_photos: int, m: int, bounds: dict) -> float:
    """Probability over all orders of the photos that a bound is above ``m`` at some time."""
    alive, failed = {0: 1.0}, 0.0
    for n in range(n_photos):
        after: dict[int, float] = {}
        for s, p in alive.items():
            right = (m - s) / (n_photos - n)
            for new, q in ((s + 1, p * right), (s, p * (1 - right))):
                if q > 0 and bounds[n + 1, new] > m:
                    failed += q
                elif q > 0:
                    after[new] = after.get(new, 0.0) + q
        alive = after
    return failed


@pytest.mark.parametrize("error_probability", [0.5, 0.05, 0.001])
@pytest.mark.parametrize("n_photos", [1, 5, 40])
def test_correct_answer_never_lowers_and_wrong_answer_never_raises(n_photos, error_probability):
    for n in range(n_photos):
        for s in range(n + 1):
            before = bound_correct(n_photos, n, s, error_probability)
            assert bound_correct(n_photos, n + 1, s + 1, error_probability) >= before
            assert bound_correct(n_photos, n + 1, s, error_probability) <= before


@pytest.mark.parametrize("n_photos", [5, 40, 300])
def test_bound_is_at_most_the_exact_bound_of_one_sample_size(n_photos):
    for n in range(1, n_photos + 1, max(1, n_photos // 20)):
        for s in range(0, n + 1, max(1, n // 10)):
            values = np.arange(s, n_photos - (n - s) + 1)
            tail = stats.hypergeom.sf(s - 1, n_photos, values, n)
            clopper_pearson = values[tail > 0.05][0]
            assert s <= bound_correct(n_photos, n, s, 0.05) <= clopper_pearson


def test_bound_is_exact_when_all_photos_are_sampled():
    for n_photos in (1, 5, 40, 1000):
        for s in {0, 1, n_photos // 2, n_photos}:
            assert bound_correct(n_photos, n_photos, s, 0.05) == s


def test_bound_of_no_sample_is_zero():
    assert bound_correct(100, 0, 0, 0.05) == 0


def test_bound_stays_accurate_in_a_large_pool():
    share = bound_correct(100_000, 500, 495, 0.0125) / 100_000
    assert share == pytest.approx(bound_correct(20_000, 500, 495, 0.0125) / 20_000, abs=1e-3)


@pytest.mark.parametrize(
    ("n_photos", "n", "n_wrong", "goal"),
    [(1000, 0, 0, 0.95), (1000, 40, 0, 0.95), (5950, 50, 1, 0.95), (6000, 100, 4, 0.9)],
)
def test_forecast_is_right_when_its_answers_come(n_photos, n, n_wrong, goal):
    least, rate = round(goal * n_photos), n_wrong / n if n else 0.0
    size = forecast_sample_size(n_photos, n, n - n_wrong, 0.0125, least, rate)
    assert size is not None
    for total in range(n + 1, size + 1):
        wrong = n_wrong + int(rate * (total - n) + 0.5)
        reached = bound_correct(n_photos, total, total - wrong, 0.0125) >= least
        assert reached == (total == size)


def test_forecast_says_when_the_rate_is_too_high():
    assert forecast_sample_size(1000, 50, 40, 0.0125, 950, 0.2) is None
    assert forecast_sample_size(5, 0, 0, 0.0125, 5, 0.0) is None


def test_rounds_spend_the_whole_and_no_more():
    assert sum(spend(0.05, number) for number in range(1, 2000)) == pytest.approx(0.05, rel=1e-3)
    assert sum(spend(0.05, number) for number in range(1, 2000)) < 0.05
