"""Verdicts on one, two and more networks, against intervals computed with SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from infoshot.reproduction.verdicts import Claim, difference_interval, judge

A, B, C = (("tim", "", "", 5, 1), ("other", "", "", 5, 1), ("third", "", "", 5, 1))


def _network(seed, mean_difference, noise=10.0, n_tasks=400):
    """Return accuracies of two methods that differ by a mean, which is exact."""
    generator = torch.Generator().manual_seed(seed)
    below = 50 + noise * torch.randn(n_tasks, generator=generator, dtype=torch.float64)
    change = noise * torch.randn(n_tasks, generator=generator, dtype=torch.float64)
    change += mean_difference - change.mean()
    return {A: (below + change) / 100, B: below / 100}


@pytest.mark.parametrize("n_networks", [3, 4, 7, 10])
def test_the_interval_of_several_networks_equals_that_of_scipy(n_networks):
    rng = np.random.default_rng(n_networks)
    table = rng.normal(2, 5, (n_networks, 300)) + rng.normal(0, 1, (n_networks, 1))
    mean, half_width = difference_interval([torch.tensor(row) for row in table])
    means, tasks = table.mean(1), table.mean(0)
    low, high = stats.t.interval(0.95, n_networks - 1, means.mean(), stats.sem(means))
    over_tasks = stats.norm.ppf(0.975) * stats.sem(tasks)
    assert mean == pytest.approx(table.mean())
    assert half_width == pytest.approx(math.hypot((high - low) / 2, over_tasks), rel=1e-3)


def test_more_than_ten_networks_use_a_slightly_wider_interval():
    table = np.random.default_rng(0).normal(2, 5, (15, 300))
    _, half_width = difference_interval([torch.tensor(row) for row in table])
    exact = stats.t.ppf(0.975, 14) * stats.sem(table.mean(1))
    over_tasks = 1.96 * stats.sem(table.mean(0))
    assert 1 < half_width / math.hypot(exact, over_tasks) < 1.06


@pytest.mark.parametrize(
    ("difference", "verdict"), [(2.0, "holds"), (-2.0, "does not hold"), (0.5, "undecided")]
)
def test_one_network_is_judged_by_its_tasks(difference, verdict):
    found, numbers = judge([_network(0, difference)], [Claim(A, B)])
    assert found == verdict  # the half-width is about one point
    assert "(400 tasks; difference " in numbers


def test_two_networks_must_agree():
    for differences, verdict in {
        (3.0, 2.0): "holds",
        (-3.0, -2.0): "does not hold",
        (3.0, -3.0): "undecided",
        (3.0, 0.5): "undecided",
    }.items():
        networks = [_network(n, value) for n, value in enumerate(differences)]
        found, numbers = judge(networks, [Claim(A, B)])
        assert found == verdict, differences
        assert "(2 networks, 400 tasks; difference" in numbers
        assert " and " in numbers


def test_networks_that_differ_leave_a_difference_undecided_that_tasks_alone_would_decide():
    alike = [_network(n, 3.0 + 0.1 * n) for n in range(3)]
    assert judge(alike, [Claim(A, B)])[0] == "holds"
    apart = [_network(n, value) for n, value in enumerate((6.0, 3.0, 0.5))]
    assert judge(apart, [Claim(A, B)])[0] == "undecided"
    for network in apart[:2]:
        assert judge([network], [Claim(A, B)])[0] == "holds"
    opposite = [_network(n, -4.0 - 0.1 * n) for n in range(3)]
    assert judge(opposite, [Claim(A, B)])[0] == "does not hold"


def test_a_margin_must_be_exceeded():
    networks = [_network(n, 3.0 + 0.1 * n) for n in range(3)]
    verdicts = [judge(networks, [Claim(A, B, margin)])[0] for margin in (1, 3, 6, -10)]
    assert verdicts == ["holds", "undecided", "does not hold", "holds"]


def test_one_false_claim_is_enough_to_fail():
    network = {**_network(0, 3.0), C: torch.full((400,), 0.9)}
    assert judge([network], [Claim(A, B), Claim(A, C)])[0] == "does not hold"


def test_networks_without_all_accuracies_are_left_out():
    whole = _network(0, 3.0)
    part = {A: whole[A]}
    verdict, numbers = judge([part, whole, part], [Claim(A, B)])
    alone, shown = judge([whole], [Claim(A, B)])
    assert verdict == alone == "holds"
    assert numbers == shown.replace("(400 tasks", "(1 of 3 networks, 400 tasks")
    assert judge([part], [Claim(A, B)]) == ("not run", "")
    assert judge([], [Claim(A, B)]) == ("not run", "")


def test_methods_are_compared_on_the_tasks_that_both_have():
    many, few = torch.zeros(100), torch.full((40,), 0.3)
    many[40:] = 1.0
    verdict, numbers = judge([{A: many, B: few}], [Claim(A, B)])
    assert verdict == "does not hold"
    assert numbers == "0.00, 30.00 (40 tasks; difference -30.00 ± 0.00)"


def test_a_single_task_decides_nothing():
    verdict, numbers = judge([{A: torch.tensor([0.9]), B: torch.tensor([0.1])}], [Claim(A, B)])
    assert (verdict, numbers) == ("undecided", "90.00, 10.00 (1 task; difference 80.00)")
