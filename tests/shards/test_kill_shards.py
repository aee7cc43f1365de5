"""One of two processes killed at ten random moments; the same command then ends as undisturbed."""

import random
import signal
import time

import pytest
import torch
from safetensors.torch import load_file

from tests.shards.made_shards import make_shards
from tests.shards.test_shard_ranks import finished, start_ranks

pytestmark = pytest.mark.slow

N_MOMENTS = 10
SIZES = (40_000, 1, 0, 60_000, 30_000)


def _until_it_works(out):
    """Wait until the first iteration is finished."""
    deadline = time.monotonic() + 60
    while not (out / "state.safetensors").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _check_whole(out):
    """Every file under a final name can be read."""
    for path in out.rglob("*.safetensors"):
        if not path.name.startswith("."):
            load_file(path)


def test_killed_process(tmp_path):
    on_disk = make_shards(tmp_path, sizes=SIZES)
    begun = start_ranks(2, on_disk, tmp_path / "undisturbed")
    _until_it_works(tmp_path / "undisturbed")
    start = time.monotonic()
    codes, said = finished(begun)
    seconds = time.monotonic() - start
    assert codes == [0, 0], said
    expected = {
        path.name: load_file(path) for path in (tmp_path / "undisturbed").rglob("*.safetensors")
    }
    generator, n_killed = random.Random(0), 0
    for number in range(N_MOMENTS):
        out = tmp_path / f"killed{number}"
        processes = start_ranks(2, on_disk, out)
        _until_it_works(out)
        time.sleep(generator.uniform(0, seconds))
        victim = number % 2
        processes[victim].send_signal(signal.SIGKILL)
        begin = time.monotonic()
        codes, said = finished(processes, timeout=60)
        assert time.monotonic() - begin < 60
        if codes[victim] == -signal.SIGKILL and codes[1 - victim] != 0:
            n_killed += 1
            assert codes[1 - victim] == 1, said
            assert "another process of this run has ended" in said[1 - victim]
            assert "Traceback" not in said[1 - victim]
        _check_whole(out)
        codes, said = finished(start_ranks(2, on_disk, out))
        assert codes == [0, 0], said
        for path in out.rglob("*.safetensors"):
            for name, tensor in load_file(path).items():
                assert torch.equal(tensor, expected[path.name][name]), (number, path, name)
        assert len(list(out.rglob("*.safetensors"))) == len(expected)
    assert n_killed >= N_MOMENTS // 2
