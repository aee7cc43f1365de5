"""Several real processes over gloo against one, and what they say when something is wrong."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from infoshot import TimAdm, solve
from tests.shards.made_shards import SIZES, make_shards
from tests.shards.test_solve_shards import check_same

COMMAND = [sys.executable, "-m", "infoshot", "solve-shards"]


def start_ranks(size, on_disk, out, *more):
    """The processes of a run, joined without torchrun so that nobody stops them for us."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--support", on_disk.support, "--queries", on_disk.queries, "--out", out, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    environment |= {"MASTER_PORT": str(port), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": "1"}
    return [
        subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip


def finished(processes, timeout=120):
    """Exit codes and what was said."""
    said = [process.communicate(timeout=timeout) for process in processes]
    return [process.returncode for process in processes], ["".join(words) for words in said]


@pytest.mark.parametrize(("size", "n_steps", "half"), [(2, 10, True), (4, 150, False)])
def test_ranks_take_the_steps_of_one_process(tmp_path, size, n_steps, half):
    on_disk = make_shards(tmp_path, half=half)
    codes, said = finished(
        start_ranks(size, on_disk, tmp_path / "out", "--set", f"n_steps={n_steps}")
    )
    assert codes == [0] * size, said
    expected = solve(TimAdm(n_steps=n_steps), on_disk.task()).probabilities[0]
    check_same(tmp_path / "out", expected, 1e-4)
    assert f"{sum(SIZES):,} rows of 5 shards" in said[0]
    assert said[1:] == [""] * (size - 1)  # only the main process speaks


def test_a_killed_process_stops_the_others_with_a_sentence(tmp_path):
    on_disk = make_shards(tmp_path)
    processes = start_ranks(2, on_disk, tmp_path / "out", "--set", "n_steps=100000")
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "state.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGKILL)
    codes, said = finished(processes, timeout=60)
    assert codes == [1, -signal.SIGKILL]
    assert "another process of this run has ended" in said[0]
    assert "Traceback" not in said[0]


def test_a_bad_shard_of_one_process_is_named_by_it(tmp_path):
    on_disk = make_shards(tmp_path)
    rows = torch.ones(5, 24)
    rows[3, 2] = torch.nan
    save_file({"features": rows}, on_disk.queries / "bad.safetensors")
    codes, said = finished(start_ranks(2, on_disk, tmp_path / "out", "--set", "n_steps=5"))
    assert sorted(codes) == [1, 2]
    bad = codes.index(2)
    assert "bad.safetensors: row 3 has values that are not finite." in said[bad]
    assert "another process of this run has ended" in said[1 - bad]
