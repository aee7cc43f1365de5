import math

import pytest
import torch

from infoshot.labelling.calibrate import HeldOut, calibrate, hold_out, weigh_by_shares
from infoshot.metrics import wilson_interval
from infoshot.solvers import METHODS


def held(probabilities, truth, shares=None):
    if shares is None:
        shares = truth.bincount(minlength=probabilities.shape[1]) / len(truth)
    return HeldOut(torch.arange(len(truth)), truth, probabilities, shares)


def held_out(name, z_sup, y_sup, z_qry, n_way):
    usable = torch.ones(len(y_sup), dtype=torch.bool)
    return hold_out(METHODS[name], z_sup, y_sup, z_qry, torch.full((n_way,), 1 / n_way), usable)


@pytest.mark.parametrize("true_exponent", [0.4, 1.0, 2.5])
def test_calibration_finds_the_true_exponent(true_exponent):
    generator = torch.Generator().manual_seed(0)
    true = torch.softmax(2 * torch.randn(4000, 5, generator=generator), -1)
    truth = torch.multinomial(true, 1, generator=generator).flatten()
    reported = torch.softmax(true.log() / true_exponent, -1)
    exponent = held(reported, truth).exponent()
    assert exponent == pytest.approx(true_exponent, rel=0.1)
    torch.testing.assert_close(calibrate(reported, true_exponent), true, atol=1e-4, rtol=0)


def test_a_few_correct_examples_do_not_make_confidences_certain():
    truth = torch.arange(25) % 5
    reported = torch.eye(5)[truth] * 0.9 + 0.02
    confidence = calibrate(reported, held(reported, truth).exponent()).amax(-1)
    assert (confidence < 0.99).all()
    assert (confidence > 0.9).all()


def test_a_few_examples_hardly_move_a_calibrated_solver():
    """By likelihood alone, 25 examples give exponents that vary by half of their value."""
    generator = torch.Generator().manual_seed(0)
    logs = []
    for _ in range(200):
        reported = torch.softmax(2 * torch.randn(25, 5, generator=generator), -1)
        truth = torch.multinomial(reported, 1, generator=generator).flatten()
        logs.append(math.log(held(reported, truth).exponent()))
    assert abs(sum(logs) / len(logs)) < 0.1
    assert torch.tensor(logs).std() < 0.2


def test_overconfident_solvers_are_still_corrected():
    generator = torch.Generator().manual_seed(0)
    true = torch.softmax(torch.randn(25, 5, generator=generator), -1)
    truth = torch.multinomial(true, 1, generator=generator).flatten()
    assert held(torch.softmax(6 * true.log(), -1), truth).exponent() < 0.35


def test_examples_of_classes_without_images_do_not_count():
    """The images are of two classes of five, and the solver does not recognise the others."""
    truth = torch.arange(25) % 5
    good = torch.eye(5)[truth] * 0.75 + 0.05
    probabilities = good.clone()
    probabilities[truth >= 2] = torch.eye(5)[truth[truth >= 2] % 2] * 0.75 + 0.05
    shares = torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0])
    assert held(probabilities, truth).exponent() < 0.6
    own = held(probabilities, truth, shares)
    assert own.exponent() == held(good, truth, shares).exponent() >= 1.0
    assert held(probabilities, truth).estimate().accuracy == pytest.approx(0.4)
    assert own.estimate().accuracy == pytest.approx(1.0)
    # Ten examples are left, all correct.
    assert (own.estimate().low, own.estimate().n_examples) == (
        pytest.approx(wilson_interval(10, 10)[0], abs=1e-6), 25
    )  # fmt: skip


def test_unequal_weights_move_the_exponent_less():
    """They count like the examples of one class, of which there are fewer."""
    truth = torch.arange(200) % 5
    probabilities = torch.full((200, 5), 0.05)
    probabilities[torch.arange(200), (truth + torch.arange(200) // 100) % 5] = 0.8
    one_class = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    weights = weigh_by_shares(truth, one_class)
    assert weights.mean() == pytest.approx(1)
    assert weights[truth > 0].max() < 1e-9
    everything = held(probabilities, truth).exponent()
    of_one = held(probabilities, truth, one_class).exponent()
    own = truth == 0
    alone = held(probabilities[own], truth[own]).exponent()
    assert everything < of_one < 1
    assert of_one == pytest.approx(alone, rel=0.1)


def test_too_few_examples_do_not_calibrate():
    truth = torch.arange(19) % 5
    reported = torch.softmax(torch.randn(19, 5), -1)
    assert held(reported, truth).exponent() == 1.0
    assert not held(reported, truth).enough


def test_calibration_never_changes_a_label():
    reported = torch.softmax(5 * torch.randn(100, 7), -1)
    for exponent in (0.2, 0.7, 3.0):
        changed = calibrate(reported, exponent)
        assert torch.equal(changed.argmax(-1), reported.argmax(-1))
        torch.testing.assert_close(changed.sum(-1), torch.ones(100))


@pytest.mark.parametrize(
    ("n_correct", "n", "low", "high"),  # from R's binom::binom.wilson
    [(0, 10, 0.0, 0.2775402), (45, 50, 0.7863971, 0.9565243), (100, 100, 0.9630065, 1.0)],
)
def test_wilson_interval(n_correct, n, low, high):
    assert wilson_interval(n_correct, n) == pytest.approx((low, high), abs=2e-5)


def test_each_example_is_held_out_once_except_the_only_one_of_a_class():
    y_sup = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2])
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 16, generator=generator), dim=-1)
    z_sup, y_qry = centres[y_sup], torch.arange(30) % 3
    found = held_out("tim-auto", z_sup, y_sup, centres[y_qry], 3)
    assert sorted(found.rows.tolist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert torch.equal(found.truth, y_sup[found.rows])
    assert found.estimate().accuracy == 1.0


def test_labels_of_held_out_examples_are_not_used():
    generator = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(160, 64, generator=generator), dim=-1)
    found = held_out("prototype", z[:100], torch.arange(100) % 4, z[100:], 4)
    assert found.estimate().accuracy < 0.5  # nothing to learn: a quarter by chance


def test_a_mislabelled_example_is_classified_as_its_true_class():
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 16, generator=generator), dim=-1)
    true_classes = torch.arange(3).repeat_interleave(5)
    labels = true_classes.clone()
    labels[0] = 1
    noise = 0.1 * torch.randn(15, 16, generator=generator)
    z_sup = torch.nn.functional.normalize(centres[true_classes] + noise, dim=-1)
    found = held_out("tim-auto", z_sup, labels, centres[torch.arange(60) % 3], 3)
    guess = dict(zip(found.rows.tolist(), found.probabilities.argmax(-1).tolist(), strict=True))
    assert guess == dict(enumerate(true_classes.tolist()))


def test_one_example_per_class_gives_no_estimate():
    found = held_out("prototype", torch.eye(3), torch.arange(3), torch.eye(3), 3)
    assert len(found) == 0
    assert found.estimate() is None


def test_corrections_are_examples_but_not_held_out():
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 16, generator=generator), dim=-1)
    y_sup = torch.arange(12) % 3
    usable = torch.arange(12) < 6
    shares = torch.full((3,), 1 / 3)
    method = METHODS["tim-auto"]
    found = hold_out(method, centres[y_sup], y_sup, centres.repeat(10, 1), shares, usable)
    assert sorted(found.rows.tolist()) == list(range(6))


def test_estimate_has_wilsons_interval():
    truth = torch.arange(20) % 4
    guesses = torch.eye(4)[torch.where(torch.arange(20) < 18, truth, (truth + 1) % 4)]
    estimate = held(guesses, truth).estimate()
    assert (estimate.accuracy, estimate.n_examples) == (0.9, 20)
    assert (estimate.low, estimate.high) == wilson_interval(18, 20)
