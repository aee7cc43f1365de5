"""Named pipes, sockets and devices are refused in one sentence; nothing waits for them."""

import itertools
import os
import signal
import socket
import sys

import numpy as np
import pytest
import torch

from infoshot import DataError, bench, label_table, read_features, reproduce, solve_shards
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.core.csv_file import read_csv
from infoshot.core.plain_pickle import read_plain_pickle
from infoshot.core.regular_file import open_regular, read_regular
from infoshot.features.cache import FeatureCache
from infoshot.images import open_dataset
from infoshot.images.decoding import FileLocation, SliceLocation
from infoshot.images.folders import find_images
from infoshot.images.splits import read_split_file
from infoshot.training.config_file import read_config
from tests.shards.made_shards import make_shards

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(autouse=True)
def _no_waiting():
    """Fail instead of waiting."""

    def fail(*_):
        pytest.fail("waits for a pipe")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    return tmp_path / "pipe.csv"


READERS = {
    "features": read_features,
    "bench": bench,
    "solve": label_table,
    "reproduce": lambda path: reproduce(path.parent / "out", features=path),
    "sheet": lambda path: read_csv(path, "path"),
    "image": lambda path: FileLocation(path).content(),
    "image in an archive": lambda path: SliceLocation(path, "a.png", 0, 10).content(),
    "list of images": find_images,
    "split file": read_split_file,
    "pickle": read_plain_pickle,
    "training settings": read_config,
    "support of shards": lambda path: solve_shards(path, path.parent, path.parent / "out"),
    "checkpoint": lambda path: load_checkpoint(path.parent),
}


@pytest.mark.parametrize("reader", READERS)
def test_named_pipes_are_refused(reader, pipe):
    os.mkfifo(pipe.with_name("checkpoint.json"))
    with pytest.raises(DataError) as caught:
        READERS[reader](pipe)
    assert str(pipe.parent) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_named_pipes_among_shards_are_named(tmp_path):
    good = make_shards(tmp_path)
    for name in ("x.npy", "x.safetensors"):
        os.mkfifo(good.queries / name)
        with pytest.raises(DataError, match=rf"{name}: cannot be read \(a named pipe, not a reg"):
            solve_shards(good.support, good.queries, tmp_path / "out")
        (good.queries / name).unlink()


def test_a_named_pipe_under_the_name_of_a_summary_is_kept(tmp_path):
    good = make_shards(tmp_path)
    solve_shards(good.support, good.queries, tmp_path / "out")
    (tmp_path / "out" / "run.json").unlink()
    os.mkfifo(tmp_path / "out" / "run.json")
    with pytest.raises(DataError, match=r"run\.json: belongs to another command"):
        solve_shards(good.support, good.queries, tmp_path / "out")
    assert (tmp_path / "out" / "run.json").is_fifo()


def test_named_pipes_among_archives_are_named(tmp_path):
    os.mkfifo(tmp_path / "images.tar")
    with pytest.raises(DataError, match=r"images.tar: .*a named pipe, not a regular file"):
        open_dataset("folder", tmp_path)


def test_named_pipes_among_parts_of_the_cache_are_skipped(tmp_path):
    cache = FeatureCache(tmp_path, {"encoder": "x"})
    digest = "ab" * 32
    cache.add([digest], torch.ones(1, 3))
    for number in range(9):
        os.mkfifo(cache.folder / f"part-{number}.safetensors")
    assert cache.read([digest])[digest].tolist() == [1, 1, 1]
    cache.merge_parts()
    assert cache.read([digest])[digest].tolist() == [1, 1, 1]


def test_earlier_results_that_are_a_pipe_are_not_overwritten(tmp_path):
    os.mkfifo(tmp_path / "results.json")
    with pytest.raises(DataError, match=r"results.json: "):
        reproduce(tmp_path, only="table1", tasks=1, gradient_tasks=1)


def test_sockets_devices_and_folders_are_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="a socket, not a regular file"):
            open_regular(tmp_path / "s")
    with pytest.raises(OSError, match="a device, not a regular file"):
        open_regular("/dev/zero")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")


def test_a_file_that_becomes_a_pipe_is_refused(tmp_path, monkeypatch):
    """The check and the opening are two steps; what was opened is checked again."""
    (tmp_path / "a").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda path, real=os.stat: real(tmp_path / "a"))
    with pytest.raises(OSError, match="a named pipe, not a regular file"):
        open_regular(tmp_path / "pipe")


def test_links_to_files_are_followed(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.eye(2), labels=[0, 1])
    (tmp_path / "link.npz").symlink_to("a.npz")
    assert len(read_features(tmp_path / "link.npz").labels) == 2


def interrupt_at(number, work):
    """Call ``work``, and interrupt it before its ``number``-th instruction."""
    left = iter(range(number, -1, -1))
    before = sys.gettrace()

    def trace(frame, event, _):
        frame.f_trace_opcodes = True
        if event == "opcode" and next(left, -1) == 0:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)


@pytest.mark.filterwarnings("ignore:unclosed file")
def test_an_interrupt_at_any_moment_stays_an_interrupt(tmp_path):
    """A descriptor that is closed twice is another error, or closes the file of another thread."""
    (tmp_path / "a").write_text("x")
    for number in itertools.count():
        try:
            interrupt_at(number, lambda: open_regular(tmp_path / "a").close())
        except KeyboardInterrupt:
            continue
        break
    assert number > 30
