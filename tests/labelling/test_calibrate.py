import pytest
import torch

from infoshot.labelling.calibrate import HeldOut, calibrated, hold_out
from infoshot.metrics import wilson_interval
from infoshot.solvers import METHODS


def held(probabilities, truth):
    return HeldOut(torch.arange(len(truth)), truth, probabilities)


def held_out(name, z_sup, y_sup, z_qry, n_way):
    everyone = torch.ones(len(y_sup), dtype=torch.bool)
    return hold_out(METHODS[name], z_sup, y_sup, z_qry, n_way, everyone)


@pytest.mark.parametrize("true_exponent", [0.4, 1.0, 2.5])
def test_calibration_finds_the_exponent_that_was_planted(true_exponent):
    generator = torch.Generator().manual_seed(0)
    right = torch.softmax(2 * torch.randn(4000, 5, generator=generator), -1)
    truth = torch.multinomial(right, 1, generator=generator).flatten()
    said = torch.softmax(right.log() / true_exponent, -1)
    exponent = held(said, truth).exponent()
    assert exponent == pytest.approx(true_exponent, rel=0.1)
    torch.testing.assert_close(calibrated(said, true_exponent), right, atol=1e-4, rtol=0)


def test_a_few_examples_that_are_all_right_do_not_make_certain():
    truth = torch.arange(25) % 5
    said = torch.eye(5)[truth] * 0.9 + 0.02
    sure = calibrated(said, held(said, truth).exponent()).amax(-1)
    assert (sure < 0.99).all()
    assert (sure > 0.9).all()


def test_too_few_examples_change_nothing():
    truth = torch.arange(19) % 5
    said = torch.softmax(torch.randn(19, 5), -1)
    assert held(said, truth).exponent() == 1.0
    assert not held(said, truth).enough


def test_calibration_never_changes_a_label():
    said = torch.softmax(5 * torch.randn(100, 7), -1)
    for exponent in (0.2, 0.7, 3.0):
        changed = calibrated(said, exponent)
        assert torch.equal(changed.argmax(-1), said.argmax(-1))
        torch.testing.assert_close(changed.sum(-1), torch.ones(100))


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),  # from R's binom::binom.wilson
    [(0, 10, 0.0, 0.2775402), (45, 50, 0.7863971, 0.9565243), (100, 100, 0.9630065, 1.0)],
)
def test_wilson_interval(right, n, low, high):
    assert wilson_interval(right, n) == pytest.approx((low, high), abs=2e-5)


def test_each_example_is_held_out_once_unless_it_is_alone():
    y_sup = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 2])
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 16, generator=generator), dim=-1)
    z_sup, y_qry = centres[y_sup], torch.arange(30) % 3
    found = held_out("tim-auto", z_sup, y_sup, centres[y_qry], 3)
    assert sorted(found.rows.tolist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert torch.equal(found.truth, y_sup[found.rows])
    assert found.accuracy()[0] == 1.0


def test_examples_that_are_held_out_do_not_give_themselves_away():
    generator = torch.Generator().manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(160, 64, generator=generator), dim=-1)
    found = held_out("prototype", z[:100], torch.arange(100) % 4, z[100:], 4)
    assert found.accuracy()[0] < 0.5  # nothing to learn: one in four by chance


def test_a_mislabelled_example_comes_out_as_what_it_is():
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 16, generator=generator), dim=-1)
    looks = torch.arange(3).repeat_interleave(5)
    labels = looks.clone()
    labels[0] = 1
    noise = 0.1 * torch.randn(15, 16, generator=generator)
    z_sup = torch.nn.functional.normalize(centres[looks] + noise, dim=-1)
    found = held_out("tim-auto", z_sup, labels, centres[torch.arange(60) % 3], 3)
    guess = dict(zip(found.rows.tolist(), found.probabilities.argmax(-1).tolist(), strict=True))
    assert guess == dict(enumerate(looks.tolist()))


def test_one_example_per_class_says_nothing():
    found = held_out("prototype", torch.eye(3), torch.arange(3), torch.eye(3), 3)
    assert len(found) == 0
    assert found.accuracy() == (0.0, 0.0, 1.0)


def test_labels_that_were_given_later_are_examples_but_not_held_out():
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(3, 16, generator=generator), dim=-1)
    y_sup = torch.arange(12) % 3
    may_be = torch.arange(12) < 6
    found = hold_out(METHODS["tim-auto"], centres[y_sup], y_sup, centres.repeat(10, 1), 3, may_be)
    assert sorted(found.rows.tolist()) == list(range(6))
