"""Kill one of two processes at ten random moments; rerunning gives the undisturbed results."""

import random
import signal
import time

import pytest
import torch
from safetensors.torch import load_file

from tests.shards.made_shards import make_shards
from tests.shards.test_shard_ranks import start_ranks, wait_for

pytestmark = pytest.mark.slow

N_MOMENTS = 10
SIZES = (40_000, 1, 0, 60_000, 30_000)


def _wait_for_first_iteration(out):
    """Wait until the state of the first iteration is on disk."""
    deadline = time.monotonic() + 60
    while not (out / "state.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _check_readable(out):
    """Read every file that has its final name."""
    for path in out.rglob("*.safetensors"):
        if not path.name.startswith("."):
            load_file(path)


def test_resume_after_a_kill(tmp_path):
    on_disk = make_shards(tmp_path, sizes=SIZES)
    undisturbed = start_ranks(2, on_disk, tmp_path / "undisturbed")
    _wait_for_first_iteration(tmp_path / "undisturbed")
    start = time.monotonic()
    codes, output = wait_for(undisturbed)
    seconds = time.monotonic() - start
    assert codes == [0, 0], output
    expected = {
        path.name: load_file(path) for path in (tmp_path / "undisturbed").rglob("*.safetensors")
    }
    generator, n_killed = random.Random(0), 0
    for number in range(N_MOMENTS):
        out = tmp_path / f"killed{number}"
        processes = start_ranks(2, on_disk, out)
        _wait_for_first_iteration(out)
        time.sleep(generator.uniform(0, seconds))
        victim = number % 2
        processes[victim].send_signal(signal.SIGKILL)
        begin = time.monotonic()
        codes, output = wait_for(processes, timeout=60)
        assert time.monotonic() - begin < 60
        if codes[victim] == -signal.SIGKILL and codes[1 - victim] != 0:
            n_killed += 1
            assert codes[1 - victim] == 1, output
            assert "another process of this run has ended" in output[1 - victim]
            assert "Traceback" not in output[1 - victim]
        _check_readable(out)
        codes, output = wait_for(start_ranks(2, on_disk, out))
        assert codes == [0, 0], output
        for path in out.rglob("*.safetensors"):
            for name, tensor in load_file(path).items():
                assert torch.equal(tensor, expected[path.name][name]), (number, path, name)
        assert len(list(out.rglob("*.safetensors"))) == len(expected)
    assert n_killed >= N_MOMENTS // 2
