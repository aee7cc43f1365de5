import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from infoshot import DataError
from infoshot.images.decoding import ArrayLocation, ImageRecord, decode_workers, map_images

MANY = 2500  # images that processes decode instead of threads


def _records(n_images, odd=None):
    rows = np.random.default_rng(0).integers(0, 256, (n_images, 2, 2, 3), dtype=np.uint8)
    return [
        ImageRecord("c", str(i), ArrayLocation(f"row {i}", rows[i] if i != odd else rows[i][0]))
        for i in range(n_images)
    ]


def _sum(record):
    return int(record.location.pixels().sum())


def _process(record):
    return os.getpid()


def _die(record):
    os.kill(os.getpid(), signal.SIGKILL)


def _warn(record):
    warnings.warn_explicit("odd EXIF", UserWarning, "TiffImagePlugin.py", 1, module="PIL.Tiff")
    return 1


@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("n_images", [1, 100, MANY])
def test_results_of_threads_and_processes_are_in_order(n_workers, n_images):
    records = _records(n_images)
    results = list(map_images(_sum, records, n_workers))
    assert results == [int(record.location.row.sum()) for record in records]


def test_processes_decode_many_images_and_threads_few():
    assert os.getpid() not in map_images(_process, _records(MANY), 2)
    assert set(map_images(_process, _records(50), 2)) == {os.getpid()}


@pytest.mark.parametrize("n_images", [100, MANY])
def test_messages_of_threads_and_processes_name_the_broken_image(n_images):
    records = _records(n_images, odd=77)
    with pytest.raises(DataError, match=r"^row 77: pixels must be uint8"):
        list(map_images(_sum, records, 2))


def test_killed_worker_is_reported():
    with pytest.raises(DataError, match="a process that decoded images was killed"):
        list(map_images(_die, _records(MANY), 2))


@pytest.mark.parametrize("n_images", [100, MANY])
def test_warnings_of_pillow_are_hidden_and_filters_are_restored(n_images):
    before = list(warnings.filters)
    assert sum(map_images(_warn, _records(n_images), 2)) == n_images
    assert warnings.filters == before


def test_stopping_early_stops_the_workers():
    results = map_images(_process, _records(MANY), 2)
    worker = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_workers_do_not_outlive_a_killed_parent():
    script = """
import os, sys, time
from tests.images.test_workers import _records, MANY
from infoshot.images.decoding import map_images

def slow(record):
    os.write(1, b"%d\\n" % os.getpid())  # one write, so that lines are not mixed
    time.sleep(60)

list(map_images(slow, _records(MANY), 2))
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    workers = {int(parent.stdout.readline()) for _ in range(2)}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert parent.pid not in workers
    for _ in range(50):
        alive = {pid for pid in workers if _alive(pid)}
        if not alive:
            break
        time.sleep(0.1)
    assert not alive


def _alive(pid):
    """Whether a process runs; one that has ended but was not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_processes_of_one_torchrun_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert decode_workers() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert decode_workers() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "100")
    assert decode_workers() == 1
