import hashlib
import os
from pathlib import Path

import pytest
import torch
from infoshot.features.store import FeatureStore

ENCODER = {"backbone": "conv4", "weights_sha256": "0" * 64}


def digests(*names):
    return [hashlib.sha256(str(name).encode()).hexdigest() for name in names]


@pytest.fixture
def store(tmp_path):
    return FeatureStore(tmp_path, ENCODER)


def parts(store):
    return sorted(store.folder.glob("*"))


def test_features_come_back_bit_for_bit(store):
    features = torch.randn(3, 5)
    store.add(digests(1, 2, 3), features)
    store.add(digests(4), torch.ones(1, 5))
    known = store.read(digests(3, 1, 4, 99))
    assert known.keys() == set(digests(1, 3, 4))
    assert torch.equal(known[digests(3)[0]], features[2])


def test_every_encoder_has_its_own(store, tmp_path):
    store.add(digests(1), torch.zeros(1, 5))
    other = FeatureStore(tmp_path, {**ENCODER, "weights_sha256": "1" * 64})
    assert other.read(digests(1)) == {}


@pytest.mark.parametrize("change", ["cut", "flip", "empty", "other"])
def test_a_damaged_part_is_as_good_as_none(store, change):
    store.add(digests(1), torch.zeros(1, 5))
    store.add(digests(2), torch.ones(1, 5))
    (path,) = (p for p in parts(store) if b"\x00\x00\x80?" not in p.read_bytes())
    content = bytearray(path.read_bytes())
    content[-33] ^= 1  # the last byte of the features; the digests come after them
    new = {"cut": content[:-3], "flip": content, "empty": b"", "other": b"text"}[change]
    path.write_bytes(new)
    assert store.read(digests(1, 2)).keys() == set(digests(2))
    store.add(digests(1), torch.zeros(1, 5))
    assert store.read(digests(1, 2)).keys() == set(digests(1, 2))


def test_many_small_parts_become_one_that_holds_all(store):
    features = torch.randn(40, 5)
    for number in range(40):
        store.add(digests(number), features[number : number + 1])
    assert len(parts(store)) == 40
    store.tidy()
    assert len(parts(store)) == 1
    known = store.read(digests(*range(40)))
    assert all(torch.equal(known[d], f) for d, f in zip(digests(*range(40)), features, strict=True))
    store.tidy()
    assert len(parts(store)) == 1


def test_what_killed_writers_left_goes_unless_it_is_fresh(store):
    store.add(digests(1), torch.zeros(1, 5))
    fresh, old = (store.folder / f".part-{name}.safetensors.0.part" for name in ("a", "b"))
    fresh.write_bytes(b"half")
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.tidy()
    assert fresh.exists()
    assert not old.exists()


def test_a_tidying_that_is_cut_off_loses_nothing(store, monkeypatch):
    for number in range(10):
        store.add(digests(number), torch.full((1, 5), float(number)))
    unlinked, unlink = [], Path.unlink

    def stop(path, missing_ok=False):
        if len(unlinked) == 3:
            raise KeyboardInterrupt
        if path.name.startswith("part-"):
            unlinked.append(path)
        unlink(path, missing_ok)

    monkeypatch.setattr("pathlib.Path.unlink", stop)
    with pytest.raises(KeyboardInterrupt):
        store.tidy()
    monkeypatch.undo()
    assert store.read(digests(*range(10))).keys() == set(digests(*range(10)))
