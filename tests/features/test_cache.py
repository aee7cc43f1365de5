import hashlib
import os
import sys
from pathlib import Path

import pytest
import torch

from infoshot.core.cache_folder import default_cache_folder
from infoshot.core.errors import MissingDependencyError
from infoshot.features.cache import FeatureCache

ENCODER = {"backbone": "conv4", "weights_sha256": "0" * 64}


def digests(*names):
    return [hashlib.sha256(str(name).encode()).hexdigest() for name in names]


@pytest.fixture
def cache(tmp_path):
    return FeatureCache(tmp_path, ENCODER)


def parts(cache):
    return sorted(cache.folder.glob("*"))


def test_features_are_read_back_bit_for_bit(cache):
    features = torch.randn(3, 5)
    cache.add(digests(1, 2, 3), features)
    cache.add(digests(4), torch.ones(1, 5))
    known = cache.read(digests(3, 1, 4, 99))
    assert known.keys() == set(digests(1, 3, 4))
    assert torch.equal(known[digests(3)[0]], features[2])


def test_a_memory_spares_the_disk_for_one_encoder(cache, tmp_path, monkeypatch):
    features = torch.randn(3, 5)
    cache.add(digests(1, 2, 3), features)
    memory = {}
    first = FeatureCache(tmp_path, ENCODER, memory=memory).read(digests(1, 2))
    monkeypatch.setattr(FeatureCache, "_read", lambda *_: pytest.fail("the disk was read"))
    again = FeatureCache(tmp_path, ENCODER, memory=memory)
    assert torch.equal(again.read([*digests(2), ""])[digests(2)[0]], features[1])
    assert first.keys() == set(digests(1, 2))
    monkeypatch.undo()
    assert again.read(digests(1, 3)).keys() == set(digests(1, 3))
    other = FeatureCache(tmp_path, {**ENCODER, "weights_sha256": "1" * 64}, memory=memory)
    assert not other.read(digests(1))


def test_images_that_are_found_or_added_are_counted_once(cache, tmp_path):
    cache.add(digests(1, 2), torch.zeros(2, 5))
    again = FeatureCache(tmp_path, ENCODER)
    again.read(digests(2, 3))
    assert again.n_cached == 1
    again.add(digests(3), torch.zeros(1, 5))
    again.read(digests(2, 3))
    assert again.n_cached == 2


def test_every_encoder_has_its_own_folder(cache, tmp_path):
    cache.add(digests(1), torch.zeros(1, 5))
    other = FeatureCache(tmp_path, {**ENCODER, "weights_sha256": "1" * 64})
    assert other.read(digests(1)) == {}


@pytest.mark.parametrize("change", ["cut", "flip", "empty", "other"])
def test_a_damaged_part_is_ignored(cache, change):
    cache.add(digests(1), torch.zeros(1, 5))
    cache.add(digests(2), torch.ones(1, 5))
    (path,) = (p for p in parts(cache) if b"\x00\x00\x80?" not in p.read_bytes())
    content = bytearray(path.read_bytes())
    content[-33] ^= 1  # the last byte of the features; the digests come after them
    new = {"cut": content[:-3], "flip": content, "empty": b"", "other": b"text"}[change]
    path.write_bytes(new)
    assert cache.read(digests(1, 2)).keys() == set(digests(2))
    cache.add(digests(1), torch.zeros(1, 5))
    assert cache.read(digests(1, 2)).keys() == set(digests(1, 2))


def test_many_small_parts_are_merged_into_one(cache):
    features = torch.randn(40, 5)
    for number in range(40):
        cache.add(digests(number), features[number : number + 1])
    assert len(parts(cache)) == 40
    cache.merge_parts()
    assert len(parts(cache)) == 1
    known = cache.read(digests(*range(40)))
    assert all(torch.equal(known[d], f) for d, f in zip(digests(*range(40)), features, strict=True))
    cache.merge_parts()
    assert len(parts(cache)) == 1


def test_old_temporary_files_are_removed_and_recent_ones_kept(cache):
    cache.add(digests(1), torch.zeros(1, 5))
    name, code = parts(cache)[0].name, "0123456789abcdef" * 2
    temporary = [f".{name}.{code}.part", f".{name}.{code}.infoshot-part"]
    others = [f".{name}.part", f".{name}.{code[1:]}.part", ".notes.part", "a.infoshot-part"]
    for path in (cache.folder / other for other in [*temporary, *others]):
        path.write_bytes(b"half")
    cache.merge_parts()
    assert len(parts(cache)) == 7
    for path in cache.folder.iterdir():
        os.utime(path, (0, 0))
    (cache.folder / f".{name}.{code[::-1]}.part").mkdir()
    cache.merge_parts()
    assert {path.name for path in parts(cache)} == {name, *others, f".{name}.{code[::-1]}.part"}


def test_an_interrupted_merge_loses_nothing(cache, monkeypatch):
    for number in range(10):
        cache.add(digests(number), torch.full((1, 5), float(number)))
    unlinked, unlink = [], Path.unlink

    def stop(path, missing_ok=False):
        if len(unlinked) == 3:
            raise KeyboardInterrupt
        if path.name.startswith("part-"):
            unlinked.append(path)
        unlink(path, missing_ok)

    monkeypatch.setattr("pathlib.Path.unlink", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.merge_parts()
    monkeypatch.undo()
    assert cache.read(digests(*range(10))).keys() == set(digests(*range(10)))


def test_parts_that_another_process_removes_meanwhile_are_ignored(cache, monkeypatch):
    for number in range(10):
        cache.add(digests(number), torch.full((1, 5), float(number)))
    iterdir, removed = Path.iterdir, f"part-{'0' * 32}.safetensors"
    monkeypatch.setattr(Path, "iterdir", lambda folder: [*iterdir(folder), folder / removed])
    cache.merge_parts()
    assert cache.read(digests(*range(10))).keys() == set(digests(*range(10)))
    monkeypatch.undo()
    assert len(parts(cache)) == 1


def test_default_folder_is_that_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("INFOSHOT_CACHE", str(tmp_path / "c"))
    assert default_cache_folder() == tmp_path / "c"
    monkeypatch.delenv("INFOSHOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_cache_folder().name == "infoshot"


def test_default_folder_without_platformdirs_says_what_to_do(monkeypatch):
    monkeypatch.delenv("INFOSHOT_CACHE", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(MissingDependencyError, match="platformdirs, or name a folder in the env"):
        default_cache_folder()


def test_a_reader_finds_rows_that_another_process_merges_meanwhile(cache, monkeypatch):
    for number in range(10):
        cache.add(digests(number), torch.full((1, 5), float(number)))
    read = FeatureCache._read

    def merge_first(reader, path):
        monkeypatch.setattr(FeatureCache, "_read", read)
        FeatureCache(cache.folder.parent, ENCODER).merge_parts()
        return read(reader, path)

    monkeypatch.setattr(FeatureCache, "_read", merge_first)
    assert cache.read(digests(*range(10))).keys() == set(digests(*range(10)))
