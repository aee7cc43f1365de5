"""Groups of networks: which files belong together, means, intervals over tasks, spreads."""

import math

import numpy as np
import pytest
import torch

from infoshot.reproduction.network_groups import group_sources, measure
from infoshot.reproduction.report_sources import Source
from tests.reproduction.synthetic_results import make_results, source


def test_files_of_the_same_data_set_and_backbone_are_networks_of_one_group():
    files = [source("mini-imagenet"), source("cub"), source("mini-imagenet", number=1),
             source("mini-imagenet", "wrn28-10")]  # fmt: skip
    groups = group_sources(files)
    assert [group.sources for group in groups] == [(files[0], files[2]), (files[1],), (files[3],)]
    assert [group.about for group in groups] == [
        "mini-ImageNet, ResNet-18, 2 networks", "CUB, ResNet-18", "mini-ImageNet, WRN28-10",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dataset", "backbone", "title"),
    [
        ("folder", "resnet18", "own images, ResNet-18, 0.npz"),
        ("", "resnet18", "ResNet-18, 0.npz"),
        ("cub", "", "CUB, 0.npz"),
        ("", "", "0.npz"),
    ],
)
def test_files_of_unknown_origin_are_never_averaged(dataset, backbone, title):
    groups = group_sources([Source(f"{n}.npz", str(n), dataset, backbone) for n in range(2)])
    assert [len(group.sources) for group in groups] == [1, 1]
    assert groups[0].title == title


def test_the_mean_and_its_interval_are_those_of_the_tasks_averaged_over_networks():
    """An independent computation in NumPy, with a task effect that all networks share."""
    rng = np.random.default_rng(0)
    shared = rng.normal(0.6, 0.1, 500)
    networks = [shared + offset + rng.normal(0, 0.02, 500) for offset in (0.0, 0.03, -0.01)]
    number = measure([torch.tensor(tasks) for tasks in networks])
    averaged = 100 * np.mean(networks, axis=0)
    assert number.mean == pytest.approx(averaged.mean())
    assert number.ci95 == pytest.approx(1.96 * averaged.std(ddof=1) / math.sqrt(500), rel=1e-3)
    means = [100 * tasks.mean() for tasks in networks]
    assert number.networks == pytest.approx(means)
    assert number.spread == pytest.approx(np.std(means, ddof=1))
    # Averaging independent errors would give a narrower interval, which is wrong: tasks are shared.
    assert number.ci95 > 1.96 * 100 * shared.std() / math.sqrt(500) * 0.99


@pytest.mark.parametrize(
    ("means", "text"), [((50.0,), ""), ((50.0, 51.5), "range 1.50"), ((50.0, 51.0, 54.0), "s 2.08")]
)
def test_the_spread_says_what_it_is(means, text):
    number = measure([torch.full((4,), mean / 100) for mean in means])
    assert number.spread_text == text
    assert math.isnan(number.spread) == (len(means) == 1)


def test_networks_without_a_result_are_left_out(tmp_path):
    def choose(missing):
        return lambda cell: "no base mean" if missing and cell.name == "SimpleShot" else [50, 60]

    files = [source("cub", number=n) for n in range(3)]
    results = make_results(tmp_path, dict(zip(files, map(choose, (0, 1, 0)), strict=True)))
    group = results.groups[0]
    assert len(results.measured(group, ("SimpleShot", "", "", 5, 1)).networks) == 2
    assert len(results.measured(group, ("TIM-GD", "", "", 5, 1)).networks) == 3
    assert results.measured(group, ("Unknown", "", "", 5, 1)) is None


def test_tim_of_table_1_is_the_full_loss_of_the_ablation(tmp_path):
    def choose(cell):
        return [70.0, 71.0] if cell.name == "TIM-ADM" else [1.0, 2.0]

    results = make_results(tmp_path, {source("cub"): choose}, ["table1"])
    (network,) = results.accuracies(results.groups[0])
    assert network["TIM-ADM", "W", "CE-H(Y)+H(Y|X)", 5, 5].tolist() == [0.7, 0.71]
    assert ("SimpleShot", "W", "CE-H(Y)+H(Y|X)", 5, 5) not in network
