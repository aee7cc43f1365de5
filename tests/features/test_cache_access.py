"""Whose features a cache returns: permissions, foreign parts, pipes, folders that are read-only."""

import hashlib
import json
import os
import stat
import threading

import pytest
import torch
from safetensors.torch import save

from infoshot import DataError
from infoshot.features import cache as module
from infoshot.features.api import extract
from infoshot.features.cache import FeatureCache
from tests.encoders import save_conv4
from tests.image_folders import make_folders
from tests.labelling.commands import run

ENCODER = {"backbone": "conv4"}
DIGESTS = [hashlib.sha256(name.encode()).hexdigest() for name in "abc"]
FEATURES = torch.arange(15.0).view(3, 5)
posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture
def cache(tmp_path):
    """A cache with three images."""
    filled = FeatureCache(tmp_path / "cache", ENCODER)
    filled.add(DIGESTS, FEATURES)
    return filled


def read(folder, **more):
    return FeatureCache(folder, ENCODER, **more).read(DIGESTS)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@posix
def test_folders_are_created_for_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        cache = FeatureCache(tmp_path / "parent" / "cache", ENCODER)
        cache.add(DIGESTS, FEATURES)
    finally:
        os.umask(before)
    assert [mode(path) for path in (cache.folder, cache.folder.parent)] == [0o700] * 2
    assert mode(tmp_path / "parent") == 0o777  # not part of the cache
    other = FeatureCache(tmp_path / "parent" / "cache", {"backbone": "resnet18"})
    other.add(DIGESTS, FEATURES)
    assert mode(other.folder) == 0o700
    assert len(read(tmp_path / "parent" / "cache")) == 3


@posix
@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o702])
@pytest.mark.parametrize("inner", [False, True])
def test_a_cache_that_everyone_can_write_to_is_refused(bits, inner, cache):
    (cache.folder if inner else cache.folder.parent).chmod(bits)
    for use in (lambda: read(cache.folder.parent), lambda: cache.add(DIGESTS, FEATURES)):
        with pytest.raises(DataError, match=r"everyone can write to this cache.*\(chmod o-w\)"):
            use()


@posix
def test_a_cache_that_a_group_can_write_to_is_used_with_one_warning(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o2770)
    cache = FeatureCache(folder, ENCODER)
    with pytest.warns(UserWarning, match="other users can write to this cache, and so change"):
        cache.add(DIGESTS, FEATURES)
    assert len(cache.read(DIGESTS)) == 3  # without another warning, which would be an error
    assert mode(cache.folder) == 0o2770  # so that the group can use it


@posix
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_cache_of_another_user_is_used_with_a_warning(kind, cache, tmp_path, monkeypatch):
    folder = cache.folder.parent
    if kind == "link":
        folder = tmp_path / "link"
        folder.symlink_to(cache.folder.parent)
    if os.geteuid() == 0:
        os.chown(folder, 12345, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(UserWarning, match="other users can write"):
        assert len(read(folder)) == 3


@posix
def test_a_linked_cache_of_the_user_is_like_any_other(cache, tmp_path):
    (tmp_path / "link").symlink_to(cache.folder.parent)
    assert len(read(tmp_path / "link")) == 3
    FeatureCache(tmp_path / "link", ENCODER).add(DIGESTS[:1], FEATURES[:1])
    assert len(list(cache.folder.iterdir())) == 2


def test_a_part_of_another_encoder_is_ignored(cache, tmp_path):
    other = FeatureCache(tmp_path / "cache", {"backbone": "resnet18"})
    other.add(DIGESTS, FEATURES + 1)
    (part,) = other.folder.iterdir()
    (own,) = cache.folder.iterdir()
    own.unlink()
    part.rename(cache.folder / part.name)
    assert read(tmp_path / "cache") == {}


def swap_rows(content):
    """Swap the features of two images."""
    rows = FEATURES.numpy().tobytes()
    return content.replace(rows, rows[20:40] + rows[:20] + rows[40:])


@pytest.mark.parametrize("change", ["rows", "name"])
def test_swapped_rows_and_renamed_parts_are_ignored(change, cache):
    (part,) = cache.folder.iterdir()
    if change == "rows":
        swapped = swap_rows(part.read_bytes())
        assert swapped != part.read_bytes()
        part.write_bytes(swapped)
    else:
        part.rename(part.with_name(f"part-{'0' * 32}.safetensors"))
    assert read(cache.folder.parent) == {}


def put(cache, tensors, metadata=None):
    """Write a part whose name fits its content."""
    content = save(tensors, metadata=metadata or {"encoder": json.dumps(ENCODER)})
    name = hashlib.sha256(content).hexdigest()[:32]
    (cache.folder / f"part-{name}.safetensors").write_bytes(content)


NAMES = torch.tensor([list(bytes.fromhex(digest)) for digest in DIGESTS], dtype=torch.uint8)
UNSOUND = {
    "not finite": {"digests": NAMES, "features": FEATURES / 0},
    "more features than images": {"digests": NAMES[:2], "features": FEATURES},
    "short digests": {"digests": NAMES[:, :31].contiguous(), "features": FEATURES},
    "flat": {"digests": NAMES, "features": FEATURES[:, 0].contiguous()},
    "another type": {"digests": NAMES, "features": FEATURES.half()},
    "signed digests": {"digests": NAMES.to(torch.int8), "features": FEATURES},
    "no features": {"digests": NAMES},
    "no numbers": {"digests": NAMES, "features": FEATURES[:, :0].contiguous()},
    "scalars": {"digests": torch.tensor(1, dtype=torch.uint8), "features": torch.tensor(1.0)},
    "eight bits": {"digests": NAMES, "features": FEATURES.to(torch.float8_e4m3fn)},
}


@pytest.mark.parametrize("tensors", UNSOUND.values(), ids=UNSOUND)
def test_a_part_with_other_content_is_ignored(tensors, cache):
    (part,) = cache.folder.iterdir()
    part.unlink()
    put(cache, tensors)
    assert read(cache.folder.parent) == {}
    for number in range(8):
        cache.add(DIGESTS[:1], torch.full((1, 5), float(number)))
    cache.merge_parts()
    assert len(list(cache.folder.iterdir())) == 2  # the merged part, and the other one


def test_a_part_without_an_encoder_is_ignored(cache):
    (part,) = cache.folder.iterdir()
    part.unlink()
    put(cache, {"digests": NAMES, "features": FEATURES}, metadata={"other": ""})
    assert read(cache.folder.parent) == {}


def test_features_of_another_width_are_refused(cache):
    message = "has features of 5 and of 4 numbers for one encoder; remove the folder"
    with pytest.raises(DataError, match=message):
        read(cache.folder.parent, width=4)
    put(cache, {"digests": NAMES, "features": FEATURES[:, :4].contiguous()})
    with pytest.raises(DataError, match=r"has features of \d and of \d numbers"):
        read(cache.folder.parent)
    with pytest.raises(DataError, match=r"has features of 3 and of 5 numbers"):
        cache.add(DIGESTS, FEATURES[:, :3])


@posix
def test_a_pipe_in_the_cache_does_not_block(cache):
    pipe = cache.folder / f"part-{'0' * 32}.safetensors"
    os.mkfifo(pipe)
    # A reader that waits for the pipe gets a writer after a while, so that the test ends.
    rescue = threading.Timer(20, lambda: os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)))
    rescue.daemon = True
    rescue.start()
    try:
        assert len(read(cache.folder.parent)) == 3
        assert rescue.is_alive()
        for number in range(8):
            cache.add(DIGESTS[:1], torch.full((1, 5), float(number)))
        cache.merge_parts()
    finally:
        rescue.cancel()
    assert pipe.is_fifo()


def test_large_files_and_links_are_not_read(cache, monkeypatch, tmp_path):
    (part,) = cache.folder.iterdir()
    moved = part.rename(tmp_path / part.name)
    part.symlink_to(moved)
    assert read(cache.folder.parent) == {}
    part.unlink()
    moved.rename(part)
    assert len(read(cache.folder.parent)) == 3
    monkeypatch.setattr(module, "_LARGEST", 100)
    assert read(cache.folder.parent) == {}


def test_a_cache_that_is_read_only_is_read(cache, monkeypatch):
    def fail(path, content):
        raise DataError(f"{path}: cannot be written (Read-only file system).")

    new = hashlib.sha256(b"new").hexdigest()
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_atomically", fail)
        reader = FeatureCache(cache.folder.parent, ENCODER)
        assert len(reader.read(DIGESTS)) == 3
        with pytest.warns(UserWarning, match=r"\(Read-only file system\)\. New features are not"):
            reader.add([new], FEATURES[:1])
        reader.add([new], FEATURES[:1])  # without another warning, which would be an error
        reader.merge_parts()
    assert reader.n_cached == 3


def test_extraction_works_without_a_cache(tmp_path):
    """A file is where the folder of the cache should be."""
    root = make_folders(tmp_path / "images", 40, size=(20, 20), splits={"test": "ab"})
    checkpoint = save_conv4(tmp_path / "checkpoint")
    (tmp_path / "file").write_text("")
    arguments = {"checkpoint": checkpoint, "resize": 20, "crop": 16}
    with pytest.warns(UserWarning, match="New features are not cached") as caught:
        table = extract("folder", root, **arguments, cache=tmp_path / "file")
    assert len(caught) == 1
    expected = extract("folder", root, **arguments)
    assert torch.equal(table.features, expected.features)
    assert (tmp_path / "file").read_text() == ""


@posix
def test_the_command_refuses_a_cache_that_everyone_can_write_to(tmp_path):
    root = make_folders(tmp_path / "images", 2, size=(20, 20), splits={"test": "ab"})
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    result = run(
        "extract", "--dataset", "folder", "--root", root, "--out", tmp_path / "f",
        "--checkpoint", save_conv4(tmp_path / "checkpoint"), "--cache", tmp_path / "cache",
    )  # fmt: skip
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {tmp_path / 'cache'}: everyone can write to this")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "f").exists()
