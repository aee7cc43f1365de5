"""Projections against NumPy's SVD and scikit-learn, and on pools that are hard to place."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from infoshot.core.errors import InvalidArgumentError, ShapeError
from infoshot.reviewing import projection
from infoshot.reviewing.projection import embed, place, reduce


def _features(n=300, dim=40, seed=0):
    """Features whose directions have different variances."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, dim)) * np.linspace(3, 0.1, dim) + 1).astype(np.float32)


def _clusters(n=400, n_clusters=10, dim=20, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % n_clusters
    centres = rng.standard_normal((n_clusters, dim))
    return (centres[labels] + rng.standard_normal((n, dim)) * 0.6).astype(np.float32), labels


def _same_class(xy, labels, n_neighbours=10):
    near = NearestNeighbors(n_neighbors=n_neighbours + 1).fit(xy)
    found = near.kneighbors(xy, return_distance=False)[:, 1:]
    return (labels[found] == labels[:, None]).mean()


@pytest.mark.parametrize("n", [300, 9000])  # one chunk, several chunks
def test_components_are_those_of_the_svd(n):
    features = _features(n)
    unit = features.astype(float) / np.linalg.norm(features.astype(float), axis=1, keepdims=True)
    left, values, _ = np.linalg.svd(unit - unit.mean(0), full_matrices=False)
    expected = (left * values)[:, :8]
    found = reduce(features, n_dims=8)
    assert found.dtype == np.float32
    signs = np.sign((expected * found).sum(0))
    np.testing.assert_allclose(found, expected * signs, atol=2e-5)


def test_the_largest_weight_of_each_component_is_positive():
    features = _features()
    found = reduce(features, n_dims=5).astype(float)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    weights = np.linalg.lstsq(found, unit - unit.mean(0), rcond=None)[0]
    largest = np.abs(weights).argmax(1)
    assert (np.take_along_axis(weights, largest[:, None], 1) > 0).all()


def test_distances_hold_if_all_components_are_kept():
    features = _features(dim=30)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    found = reduce(features)
    assert found.shape == (300, 64)
    assert (found[:, 30:] == 0).all()
    before = np.linalg.norm(unit[:50, None] - unit[None, :50], axis=2)
    after = np.linalg.norm(found[:50, None] - found[None, :50], axis=2)
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_tensors_and_arrays_and_half_precision_give_the_same():
    features = torch.from_numpy(_features()).half()
    expected = reduce(features.float().numpy())
    np.testing.assert_array_equal(reduce(features), expected)
    np.testing.assert_array_equal(reduce(features.float()), expected)


def test_length_does_not_matter():
    features = _features()
    scaled = features * np.float32([[1e-30], [1e30], [1]]).repeat(100, 0)
    np.testing.assert_allclose(reduce(scaled), reduce(features), atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_unreadable_rows_change_nothing_else(bad):
    features = _features()
    with_bad = np.insert(features, [0, 100, 300], bad, axis=0)
    kept = np.delete(np.arange(303), [0, 101, 302])
    vectors = reduce(with_bad)
    np.testing.assert_allclose(vectors[kept], reduce(features), atol=1e-6)
    for rows in (vectors, place(vectors), embed(vectors)):
        assert np.isnan(rows[[0, 101, 302]]).all()
        assert np.isfinite(rows[kept]).all()


def test_positions_fill_the_square_with_equal_scales():
    vectors = reduce(_features())
    xy = place(vectors)
    assert xy.dtype == np.float32
    sides = xy.max(0) - xy.min(0)
    assert sides.max() == 2
    np.testing.assert_allclose(xy.max(0), -xy.min(0), atol=1e-6)
    scales = sides / np.ptp(vectors[:, :2], axis=0)
    np.testing.assert_allclose(scales[0], scales[1], rtol=1e-5)
    assert np.abs(embed(vectors)).max() == 1


def test_tsne_keeps_neighbours_better_than_two_components():
    features, labels = _clusters()
    vectors = reduce(features)
    flat, embedded = _same_class(place(vectors), labels), _same_class(embed(vectors), labels)
    assert embedded > 0.95
    assert embedded > flat + 0.1


def test_results_are_the_same_every_time():
    vectors = reduce(_clusters()[0])
    np.testing.assert_array_equal(embed(vectors, seed=3), embed(vectors, seed=3))
    np.testing.assert_array_equal(vectors, reduce(_clusters()[0]))


def test_photos_beyond_the_limit_are_placed_among_their_neighbours(monkeypatch):
    monkeypatch.setattr(projection, "MOST_EMBEDDED", 200)
    features, labels = _clusters(600)
    vectors = reduce(features)
    vectors[7] = np.nan
    xy = embed(vectors, seed=1)
    readable = np.arange(600) != 7
    assert np.isnan(xy[7]).all()
    assert _same_class(xy[readable], labels[readable]) > 0.95
    np.testing.assert_array_equal(xy, embed(vectors, seed=1))
    assert (xy[readable] != embed(vectors, seed=2)[readable]).any()


def test_a_copy_is_placed_on_the_photo_that_takes_part(monkeypatch):
    monkeypatch.setattr(projection, "MOST_EMBEDDED", 100)
    vectors = np.repeat(reduce(_features(60)), 4, axis=0)
    xy = embed(vectors).reshape(60, 4, 2)
    # Photos that do not take part are at the mean of their copies that do.
    spread = np.abs(xy - xy.mean(1, keepdims=True)).max((1, 2))
    assert np.median(spread) < 0.1


@pytest.mark.parametrize("n", range(7))
@pytest.mark.parametrize("kind", ["different", "equal", "zero"])
def test_tiny_pools(n, kind):
    features = _features(n, dim=5)
    if kind != "different":
        features = np.full_like(features, kind == "equal")
    vectors = reduce(features)
    assert vectors.shape == (n, 64)
    for xy in (place(vectors), embed(vectors)):
        assert xy.shape == (n, 2)
        assert np.isfinite(xy).all()
        assert (np.abs(xy) <= 1).all()
    if kind != "different":
        assert (vectors == 0).all()


def test_many_copies_and_constant_pools_can_be_embedded():
    for vectors in (reduce(np.ones((200, 5))), reduce(np.repeat(_features(4, 5), 50, axis=0))):
        xy = embed(vectors)
        assert np.isfinite(xy).all()
    assert np.isnan(embed(np.full((5, 64), np.nan, np.float32))).all()


def test_wrong_arguments_are_named():
    with pytest.raises(ShapeError, match=r"features must have shape \(photo, dim\); got \(3,\)"):
        reduce(np.ones(3))
    with pytest.raises(InvalidArgumentError, match="n_dims must be a whole number"):
        reduce(np.ones((3, 2)), n_dims=0)
    with pytest.raises(InvalidArgumentError, match="seed must be a whole number"):
        embed(np.ones((3, 2), np.float32), seed=-1)
