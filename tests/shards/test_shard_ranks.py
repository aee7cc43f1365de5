"""Several real processes over gloo against one, and their messages when something fails."""

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
    """Start the processes of a run, without torchrun, which would stop them for us."""
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


def wait_for(processes, timeout=120):
    """Exit codes and output of the processes."""
    output = [process.communicate(timeout=timeout) for process in processes]
    return [process.returncode for process in processes], ["".join(parts) for parts in output]


@pytest.mark.parametrize(("size", "n_steps", "half"), [(2, 10, True), (4, 150, False)])
def test_ranks_take_the_steps_of_one_process(tmp_path, size, n_steps, half):
    on_disk = make_shards(tmp_path, half=half)
    codes, output = wait_for(
        start_ranks(size, on_disk, tmp_path / "out", "--set", f"n_steps={n_steps}")
    )
    assert codes == [0] * size, output
    expected = solve(TimAdm(n_steps=n_steps), on_disk.task()).probabilities[0]
    check_same(tmp_path / "out", expected, 1e-4)
    assert f"{sum(SIZES):,} rows of 5 shards" in output[0]
    assert output[1:] == [""] * (size - 1)  # only the main process prints


def test_processes_stop_with_a_sentence_when_one_is_killed(tmp_path):
    on_disk = make_shards(tmp_path)
    processes = start_ranks(2, on_disk, tmp_path / "out", "--set", "n_steps=100000")
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "state.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGKILL)
    codes, output = wait_for(processes, timeout=60)
    assert codes == [1, -signal.SIGKILL]
    assert "another process of this run has ended" in output[0]
    assert "Traceback" not in output[0]


def test_the_process_of_a_bad_shard_names_it(tmp_path):
    on_disk = make_shards(tmp_path)
    rows = torch.ones(5, 24)
    rows[3, 2] = torch.nan
    save_file({"features": rows}, on_disk.queries / "bad.safetensors")
    codes, output = wait_for(start_ranks(2, on_disk, tmp_path / "out", "--set", "n_steps=5"))
    assert sorted(codes) == [1, 2]
    bad = codes.index(2)
    assert "bad.safetensors: row 3 has values that are not finite." in output[bad]
    assert "another process of this run has ended" in output[1 - bad]
