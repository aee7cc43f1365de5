"""Several processes that add to, read and merge one cache at the same time."""

import errno
import hashlib
import io
import os
import random
import subprocess
import sys
import threading
from functools import partial

import pytest
import torch

from infoshot.features import cache as module
from infoshot.features.cache import FeatureCache

ENCODER = {"backbone": "conv4"}
BEFORE, ADDED = range(8), range(10, 12)


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    """Power loss is not under test; waiting for the disk takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def digest(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def add(folder, numbers):
    """Add images one by one, so that each is a part; features tell which image they are of."""
    for number in numbers:
        FeatureCache(folder, ENCODER).add([digest(number)], torch.full((1, 3), float(number)))


def merge(folder):
    FeatureCache(folder, ENCODER).merge_parts()


def check(folder, numbers):
    """Read images; all of them must be there, with their own features."""
    known = FeatureCache(folder, ENCODER).read([digest(number) for number in numbers])
    for number in numbers:
        assert known[digest(number)].tolist() == [number] * 3


# What one process does, and what another one does meanwhile.
FIRST = {
    "add": lambda folder: add(folder, ADDED),
    "read": lambda folder: check(folder, BEFORE),
    "merge": merge,
}
SECOND = {"add": partial(add, numbers=[0, 1, 20]), "merge": merge}
CALLS = ("open", "listdir", "scandir", "stat", "lstat", "mkdir", "replace", "unlink")


def run_within(first, second, at):
    """Run ``second`` after system call ``at`` of ``first``; whether there was such a call."""
    count, reached = 0, False

    def counted(call):
        def wrapper(*arguments, **options):
            nonlocal count, reached
            result = call(*arguments, **options)
            count += 1
            if count > at and not reached:
                reached = True
                second()
            return result

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, counted(getattr(os, name)))
        patch.setattr(io, "open", counted(io.open))
        first()
    return reached


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("second", SECOND)
def test_nothing_is_lost_whenever_another_process_acts(first, second, tmp_path):
    moment, reached = 0, True
    while reached:
        folder = tmp_path / str(moment)
        add(folder, BEFORE)
        reached = run_within(partial(FIRST[first], folder), partial(SECOND[second], folder), moment)
        check(folder, [*BEFORE, *(ADDED if first == "add" else ())])
        moment += 1
    assert moment > 8


def test_threads_that_share_a_cache_lose_nothing(tmp_path, monkeypatch):
    """400 operations; parts are merged all the time, and threads switch within operations."""
    monkeypatch.setattr(module, "_MANY_PARTS", 2)
    failures = []

    def work(number):
        generator, own = random.Random(number), []
        try:
            for step in range(100):
                match generator.choice(["add", "read", "merge"]):
                    case "add":
                        own.append(1000 * number + step)
                        add(tmp_path, [own[-1], step])  # the second one is added by all threads
                    case "read":
                        check(tmp_path, own)
                    case "merge":
                        merge(tmp_path)
            check(tmp_path, own)
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    merge(tmp_path)
    assert len(list(tmp_path.glob("*/*"))) == 1


def test_processes_that_share_a_cache_lose_nothing(tmp_path):
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.features.test_shared_cache import add, check, merge\n"
        "os.fsync = lambda _: None\n"
        "folder, first = Path(sys.argv[1]), int(sys.argv[2])\n"
        "for number in range(first, first + 30):\n"
        "    add(folder, [number])\n"
        "    check(folder, range(first, number + 1))\n"
        "    merge(folder)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, tmp_path, str(number)],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
        )
        for number in (0, 1000)
    ]  # fmt: skip
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    check(tmp_path, [*range(30), *range(1000, 1030)])


def test_a_part_that_cannot_be_read_at_the_moment_is_kept(tmp_path, monkeypatch):
    add(tmp_path, BEFORE)
    unreadable = min(tmp_path.glob("*/part-*"))

    def limited(call):
        def open_file(path, *arguments, **options):
            if path == unreadable:
                raise OSError(errno.EMFILE, "Too many open files")
            return call(path, *arguments, **options)

        return open_file

    with monkeypatch.context() as patch:
        for library in (os, io):  # two ways to open a file
            patch.setattr(library, "open", limited(library.open))
        merge(tmp_path)
    check(tmp_path, BEFORE)


def test_merging_depends_on_the_rows_only(tmp_path):
    """Otherwise the part that one process has just written could be one that another removes."""
    ones, twos = torch.ones(4, 3), torch.full((4, 3), 2.0)
    names = [digest(number) for number in range(4)]
    written = set()
    for number, order in enumerate(([0, 1, 2, 3], [3, 1, 0, 2])):
        cache = FeatureCache(tmp_path / str(number), ENCODER)
        for rows in (ones, twos)[:: 1 - 2 * number]:
            for some in (order, order[:2], order[2:], order[:1]):
                cache.add([names[k] for k in some], rows[some])
        cache.merge_parts()
        (part,) = cache.folder.iterdir()
        written.add(part.name)
    assert len(written) == 1


def test_merged_parts_stay_below_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LARGE", 2000)
    cache = FeatureCache(tmp_path, ENCODER)
    for number in range(40):
        cache.add([digest(number)], torch.full((1, 50), float(number)))
    cache.merge_parts()
    sizes = [path.stat().st_size for path in cache.folder.iterdir()]
    assert 2 < len(sizes) < 20
    assert max(sizes) < 2 * 2000
    assert len(cache.read([digest(number) for number in range(40)])) == 40
