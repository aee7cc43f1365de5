"""Whitening by the scatter within the base classes: against NumPy, and on real features."""

import dataclasses

import numpy as np
import pytest
import torch

from infoshot import (
    DataError,
    FeatureTable,
    TaskSpec,
    open_encoder,
    read_features,
    sample_tasks,
    solve,
    write_features,
)
from infoshot.benchmark.cell import Protocol, score_cell
from infoshot.core.types import BaseStatistics
from infoshot.features import choose_preparation, prepare, unit_length
from infoshot.features.base_classes import add_base_statistics, measure_scatter
from infoshot.features.normalize import base_statistics, find_statistics, whiten
from infoshot.metrics import accuracy
from infoshot.solvers import METHODS

N_CLASSES, DIM = 4, 6


@pytest.fixture
def base():
    """Features of base classes, and their labels: three directions of large scatter."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(N_CLASSES).repeat_interleave(torch.tensor([9, 30, 40, 21]))
    spread = torch.tensor([5.0, 3.0, 2.0, 0.5, 0.4, 0.3])
    means = 10 * torch.rand(N_CLASSES, DIM, generator=generator)
    return means[labels] + spread * torch.randn(100, DIM, generator=generator), labels


def reference(features, labels):
    """Mean of the base classes, and T, from their definitions."""
    z, y = features.double().numpy(), labels.numpy()
    within = sum(
        (z[y == k] - z[y == k].mean(0)).T @ (z[y == k] - z[y == k].mean(0)) for k in set(y)
    )
    relative = within / (np.trace(within) / len(within))
    variances, directions = np.linalg.eigh(np.eye(len(within)) + relative / 2)
    return z.mean(0), directions @ np.diag(variances**-0.5) @ directions.T


def test_whitening_is_the_inverse_root_of_its_docstring(base):
    mean, transform = reference(*base)
    new = torch.rand(7, DIM, generator=torch.Generator().manual_seed(1))
    whitened = whiten(new, BaseStatistics(base[0].mean(0), measure_scatter(*base)))
    np.testing.assert_allclose(whitened.numpy(), (new.numpy() - mean) @ transform, atol=1e-5)


def test_few_directions_are_the_largest_and_the_others_stay(base):
    all_rows, two = measure_scatter(*base), measure_scatter(*base, rank=2)
    assert all_rows.shape == (DIM, DIM)
    torch.testing.assert_close(two.abs(), all_rows[:2].abs())
    new = torch.eye(DIM)
    change = new - whiten(new, BaseStatistics(torch.zeros(DIM), two))
    assert torch.linalg.matrix_rank(change, rtol=1e-4) == 2


def test_signs_of_directions_and_order_of_samples_do_not_matter(base):
    features, labels = base
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))
    mean, scatter = features.mean(0), measure_scatter(features, labels)
    other = -measure_scatter(features[order], labels[order])
    new = torch.rand(5, DIM)
    torch.testing.assert_close(
        whiten(new, BaseStatistics(mean, scatter)), whiten(new, BaseStatistics(mean, other))
    )


def test_rows_have_one_length_and_the_scale_of_features_does_not_matter(base):
    features, labels = base
    table = FeatureTable(torch.rand(5, DIM) + 1, torch.arange(5), features.mean(0))
    table = dataclasses.replace(table, base_scatter=measure_scatter(features, labels))
    z = prepare(table, "whitened")
    torch.testing.assert_close(z.norm(dim=1), torch.full((5,), 0.8))
    tenfold = dataclasses.replace(
        table, features=10 * table.features, base_mean=10 * features.mean(0),
        base_scatter=measure_scatter(10 * features, labels),
    )  # fmt: skip
    torch.testing.assert_close(prepare(tenfold, "whitened"), z)


def test_classes_without_scatter_have_no_statistics():
    assert measure_scatter(torch.rand(3, 2), torch.tensor([0, 1, 2])) is None
    base = FeatureTable(
        torch.rand(2, 2), torch.tensor([0, 1]), provenance={"dataset": "x", "split_sha256": "y"}
    )
    table = add_base_statistics(FeatureTable(torch.rand(4, 2) + 1, torch.arange(4)), base)
    assert table.base_scatter is None
    assert choose_preparation(table, "whitened") == "l2"


def test_features_of_an_unknown_network_are_scaled_to_unit_length():
    table = FeatureTable(torch.rand(3, 2) + 1, torch.arange(3), provenance={"weights_sha256": "0"})
    assert base_statistics(table) is None
    assert choose_preparation(table, "whitened") == "l2"
    assert torch.equal(prepare(table, "whitened"), prepare(table, "l2"))


def test_a_feature_file_keeps_the_scatter(tmp_path, base):
    path, scatter = tmp_path / "z.safetensors", measure_scatter(*base)
    table = FeatureTable(base[0], base[1], base[0].mean(0), base_scatter=scatter)
    write_features(path, table)
    assert torch.equal(read_features(path).base_scatter, scatter)
    arrays = {"features": base[0], "labels": base[1], "base_mean": base[0].mean(0)}
    np.savez(tmp_path / "z.npz", base_scatter=scatter, **arrays)
    assert torch.equal(read_features(tmp_path / "z.npz").base_scatter, scatter)


@pytest.mark.parametrize(
    ("scatter", "message"),
    [
        (
            torch.ones(2, DIM + 1),
            rf"base_scatter must be \[R, {DIM}\] with at most {DIM} rows; got",
        ),
        (torch.ones(DIM + 1, DIM), r"base_scatter must be .*; got float32 \[7, 6\]"),
        (torch.ones(DIM), r"base_scatter must be .*; got float32 \[6\]"),
        (torch.full((1, DIM), torch.nan), "base_scatter must be finite"),
    ],
)
def test_a_wrong_scatter_is_refused(tmp_path, base, scatter, message):
    path = tmp_path / "z.safetensors"
    write_features(path, FeatureTable(*base, base[0].mean(0), base_scatter=scatter))
    with pytest.raises(DataError, match=message):
        read_features(path)


def test_the_package_knows_its_networks(embedded):
    for digest, dim in (
        (open_encoder("efficientnet-lite0").digest, 1280),
        (open_encoder("efficientnet-lite2").digest, 1280),
        (embedded.provenance["weights_sha256"], 512),
    ):
        known = find_statistics(digest)
        assert known.mean.shape == (dim,)
        assert known.scatter.shape == (128, dim)
    torch.testing.assert_close(known.mean, embedded.base_mean, rtol=0.05, atol=0.02)


def test_whitening_shortens_what_varies_within_new_classes_too(embedded):
    """Of features scaled to the same length: variance within classes, relative to between them."""

    def share(z):
        means = torch.stack([z[embedded.labels == k].mean(0) for k in embedded.labels.unique()])
        within = (z - means[embedded.labels]).square().sum(1).mean()
        largest = torch.linalg.eigvalsh(torch.cov((z - means[embedded.labels]).mT))[-1]
        return largest / within

    assert share(prepare(embedded, "whitened")) < 0.5 * share(prepare(embedded, "l2"))


def test_tim_auto_gains_and_says_what_it_knows(embedded):
    spec = TaskSpec(n_shot=1)
    row, scores = score_cell(embedded, METHODS["tim-auto"], Protocol(spec=spec, n_tasks=200))
    assert row.assumes == ("base-scatter",)
    assert row.settings["preparation"] == "whitened"
    unknown = dataclasses.replace(embedded, provenance={}, base_mean=None)
    plain, others = score_cell(unknown, METHODS["tim-auto"], Protocol(spec=spec, n_tasks=200))
    assert (plain.assumes, plain.settings["preparation"]) == ((), "l2")
    gain = 100 * (scores - others)
    assert gain.mean() - 1.96 * gain.std() / 200**0.5 > 2


def test_solving_by_hand_gives_the_same(embedded):
    z = prepare(embedded, "whitened")
    table = dataclasses.replace(embedded, features=z)
    tasks, labels = sample_tasks(table, TaskSpec(n_shot=5), n_tasks=20)
    by_hand = accuracy(solve(METHODS["tim-auto"].solver, tasks).probabilities, labels)
    protocol = Protocol(spec=TaskSpec(n_shot=5), n_tasks=20)
    torch.testing.assert_close(score_cell(embedded, METHODS["tim-auto"], protocol)[1], by_hand)


@pytest.mark.parametrize("kept", ["file", "package"])
def test_features_that_were_scaled_are_not_whitened(embedded, kept):
    """They are on one side of the base mean of features as the network gives them."""
    scaled = dataclasses.replace(embedded, features=unit_length(embedded.features))
    if kept == "file":
        base = base_statistics(embedded)
        scaled = dataclasses.replace(
            scaled, base_mean=base.mean, base_scatter=base.scatter, provenance={}
        )
    with pytest.warns(UserWarning, match=r"median length of 1, the mean of the base classes has 5"):
        found = prepare(scaled, "whitened")
    torch.testing.assert_close(found, prepare(embedded, "l2"))
    half = dataclasses.replace(embedded, features=embedded.features / 2)
    assert choose_preparation(half, "whitened") == "whitened"  # images of another kind may be so
