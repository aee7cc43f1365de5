"""Groups: every pair resembles each other, none is missed, and the order is fixed."""

import numpy as np
import pytest

from infoshot.reviewing import groups
from infoshot.reviewing.groups import LARGEST, NEAR_IDENTICAL, SIMILAR, Group, find_groups


def _circle(*degrees):
    """Vectors in the plane at these angles."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def _copies(n_photos, n_copies, noise, seed=0, dim=64):
    """Photos in random directions, each with noisy copies; the number of the original of each."""
    rng = np.random.default_rng(seed)
    originals = np.repeat(np.arange(n_photos), n_copies)
    vectors = rng.standard_normal((n_photos, dim))[originals]
    vectors += noise * rng.standard_normal(vectors.shape)
    order = rng.permutation(len(vectors))
    return vectors[order].astype(np.float32), originals[order]


def _cosines(vectors):
    unit = vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    return unit @ unit.T


def _check(vectors, found):
    """Any two of a group resemble each other; groups share no photo."""
    cosines = _cosines(vectors)
    members = [number for group in found for number in group.ids]
    assert len(members) == len(set(members))
    for group in found:
        assert 2 <= len(group.ids) <= LARGEST
        assert list(group.ids) == sorted(group.ids)
        least = cosines[np.ix_(group.ids, group.ids)].min()
        assert least == pytest.approx(group.similarity, abs=1e-5)
        assert least >= (NEAR_IDENTICAL if group.near_identical else SIMILAR) - 1e-6


def test_copies_are_found():
    vectors, originals = _copies(100, 4, noise=0.1)
    found = find_groups(vectors)
    _check(vectors, found)
    expected = sorted(tuple(np.flatnonzero(originals == k).tolist()) for k in range(100))
    assert [group.ids for group in found] == expected
    assert all(group.near_identical for group in found)


def test_groups_do_not_chain():
    # Every photo is 12 degrees from the next: cos 12 = 0.978, cos 24 = 0.914, cos 36 = 0.809.
    vectors = _circle(*range(0, 180, 12))
    found = find_groups(vectors)
    _check(vectors, found)
    assert max(len(group.ids) for group in found) == 2
    wide = find_groups(vectors, near_identical=0.91, similar=0.91)
    assert max(len(group.ids) for group in wide) in (2, 3)
    cosines = _cosines(vectors)
    assert all(cosines[np.ix_(group.ids, group.ids)].min() >= 0.91 for group in wide)


@pytest.mark.parametrize("seed", range(5))
def test_random_pools_keep_the_rules_and_no_pair_is_left(seed):
    vectors = np.random.default_rng(seed).standard_normal((400, 4)).astype(np.float32)
    found = find_groups(vectors)
    _check(vectors, found)
    assert found
    alone = np.setdiff1d(np.arange(400), [number for group in found for number in group.ids])
    left = _cosines(vectors)[np.ix_(alone, alone)] - 2 * np.eye(len(alone))
    assert left.max() < SIMILAR


def test_near_identical_photos_come_first_then_large_groups():
    near, _ = _copies(6, 3, noise=0.05)
    similar, _ = _copies(5, 6, noise=0.35, seed=1)
    found = find_groups(np.concatenate([similar, near]))
    kinds = [group.near_identical for group in found]
    assert kinds == sorted(kinds, reverse=True)
    assert {True, False} == set(kinds)
    for kind in (True, False):
        sizes = [len(group.ids) for group in found if group.near_identical is kind]
        assert sizes == sorted(sizes, reverse=True)


def test_a_near_identical_photo_does_not_join_two_similar_groups():
    # 0 and 1 are near-identical; 2 is similar to both, but 0 and 1 are taken.
    found = find_groups(_circle(0, 5, 28))
    assert [(group.ids, group.near_identical) for group in found] == [((0, 1), True)]


def test_groups_are_not_larger_than_a_page():
    vectors, _ = _copies(1, 300, noise=0.01)
    found = find_groups(vectors)
    _check(vectors, found)
    assert sum(len(group.ids) for group in found) >= 290
    assert len(found) <= 60


def test_exact_copies():
    vectors = np.repeat(_circle(0, 90, 180), 5, axis=0)
    found = find_groups(vectors)
    assert [group.ids for group in found] == [
        (0, 1, 2, 3, 4),
        (5, 6, 7, 8, 9),
        (10, 11, 12, 13, 14),
    ]
    assert all(group.similarity == pytest.approx(1) for group in found)


def test_unreadable_and_zero_vectors_are_in_no_group():
    vectors = _circle(0, 0, 0, 90, 90, 90)
    vectors[1] = np.nan
    vectors[4] = 0
    assert [group.ids for group in find_groups(vectors)] == [(0, 2), (3, 5)]


@pytest.mark.parametrize("n", range(3))
def test_tiny_pools(n):
    found = find_groups(np.ones((n, 64), np.float32))
    assert found == ([] if n < 2 else [Group((0, 1), pytest.approx(1), True)])
    assert find_groups(np.full((n, 64), np.nan, np.float32)) == []


def test_results_are_the_same_every_time():
    vectors, _ = _copies(50, 3, noise=0.3)
    assert find_groups(vectors) == find_groups(vectors.copy())


def test_large_pools_are_searched_by_cells(monkeypatch):
    vectors, originals = _copies(1000, 3, noise=0.1)
    expected = find_groups(vectors)
    monkeypatch.setattr(groups, "_MOST_SEARCHED", 1000)
    monkeypatch.setattr(groups, "_CANDIDATES", 1024)
    found = find_groups(vectors)
    _check(vectors, found)
    # Copies in cells far from each other may be missed.
    assert len({group.ids for group in found} & {group.ids for group in expected}) >= 900
    assert all(len(set(originals[list(group.ids)])) == 1 for group in found)
