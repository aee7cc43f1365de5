"""Two real processes over gloo against one."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint
from infoshot.core.parallel import chunk_ranges
from infoshot.core.progress import Progress
from infoshot.distributed import (
    SINGLE_PROCESS,
    Ranks,
    gather_chunks,
    is_main_process,
    join_processes,
    shard_chunks,
    synchronise_batch_norm,
)
from infoshot.features import read_features
from infoshot.images import open_dataset
from infoshot.training import TrainConfig, base_splits, load_training_images, run_epochs
from tests.image_folders import make_folders


def _worker(rank, work, folder, size):
    """Run one of several processes, and save what it returns in the folder."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    torch.save(work(Ranks(rank, size)), folder / f"{rank}.pt")
    dist.destroy_process_group()
    os._exit(0)  # PyTorch's threads sometimes abort an ordinary exit on a busy machine


def _together(work, folder, size=2):
    torch.multiprocessing.spawn(_worker, (work, folder, size), nprocs=size)
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def _network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Sequential(nn.BatchNorm2d(4))
    ).double()


def _images():
    generator = torch.Generator().manual_seed(1)
    return 5 + torch.randn(6, 3, 7, 7, generator=generator, dtype=torch.float64)


def _gradients(network, images):
    """Two steps; gradients, inputs' gradients and statistics."""
    for _ in range(2):
        x = images.clone().requires_grad_()
        network.zero_grad()
        out = network(x)
        (out**3 + out).sum().backward()
    gradients = {name: value.grad for name, value in network.named_parameters()}
    return out.detach(), x.grad, gradients, dict(network.state_dict())


def _half(ranks):
    network = synchronise_batch_norm(_network(), "cpu")
    return _gradients(network, _images()[ranks.rank :: ranks.size])


def _all_kinds(ranks):
    """Shard and gather rows: chunks of different sizes, and more processes than chunks."""
    results = []
    for n_rows, chunk_size in ((7, 2), (8, 2), (1, 4)):
        chunks = chunk_ranges(n_rows, chunk_size)
        whole = torch.arange(n_rows * 3).view(n_rows, 3).float() / 7
        own = [whole[chunk.start : chunk.stop] for chunk in shard_chunks(chunks, ranks)]
        results.append(gather_chunks(torch.cat([whole[:0], *own]), chunks, ranks))
    ranks.check_same("nothing", "the same")
    with pytest.raises(DataError, match="the weights differ between the processes"):
        ranks.check_same("the weights", f"rank {ranks.rank}")
    return results, ranks.sum(torch.tensor([ranks.rank + 1.0])), ranks.broadcast_flag(ranks.is_main)


def _descend(ranks):
    """Three steps of a whole network in float64 on a share of every batch."""
    torch.manual_seed(0)
    network = make_backbone("conv4").double()
    step = network
    if ranks.size > 1:
        step = nn.parallel.DistributedDataParallel(synchronise_batch_norm(network, "cpu"))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        images = torch.randn(8, 3, 16, 16, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        loss = (step(images[ranks.rank :: ranks.size]) ** 2).sum(1).mean()
        loss.backward()
        optimizer.step()
    return dict(network.state_dict())


def _both(ranks):
    return _half(ranks), _all_kinds(ranks), _descend(ranks)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return _together(_both, tmp_path_factory.mktemp("two"))


def test_normalisation_over_two_processes_is_that_of_one(two):
    out, dx, gradients, state = _gradients(_network(), _images())
    for rank, ((own_out, own_dx, _, own_state), *_) in enumerate(two):
        torch.testing.assert_close(own_out, out[rank::2], atol=1e-10, rtol=0)
        torch.testing.assert_close(own_dx, dx[rank::2], atol=1e-10, rtol=0)
        assert own_state.keys() == state.keys()
        for name, value in state.items():
            torch.testing.assert_close(own_state[name], value, atol=1e-10, rtol=1e-10)
    for name, value in gradients.items():
        total = two[0][0][2][name] + two[1][0][2][name]
        torch.testing.assert_close(total, value, atol=1e-9, rtol=1e-9)


def test_steps_of_two_processes_are_those_of_one(two):
    expected = _descend(SINGLE_PROCESS)
    for *_, weights in two:
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value, atol=1e-9, rtol=1e-9)


def test_rows_are_gathered_in_order(two):
    for _, (gathered, total, flag), _ in two:
        for rows, n_rows in zip(gathered, (7, 8, 1), strict=True):
            assert torch.equal(rows, torch.arange(n_rows * 3).view(n_rows, 3).float() / 7)
        assert total.item() == 3
        assert flag


def test_single_process_changes_nothing():
    rows = torch.rand(5, 2)
    assert torch.equal(gather_chunks(rows, chunk_ranges(5, 2), SINGLE_PROCESS), rows)
    assert SINGLE_PROCESS.broadcast_flag(True)
    assert not SINGLE_PROCESS.broadcast_flag(False)
    with join_processes("cpu", {}) as ranks:
        assert ranks == SINGLE_PROCESS


def test_several_processes_refuse_one_gpu():
    environ = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    with pytest.raises(InvalidArgumentError, match="device must be 'cpu' or 'cuda' with several"):
        join_processes("cuda:1", environ).__enter__()


def test_default_device_is_available():
    with join_processes(None, {}) as ranks:
        assert ranks.device == ("cuda" if torch.cuda.is_available() else "cpu")


def test_main_process_is_that_of_rank_0():
    assert is_main_process({})
    assert is_main_process({"RANK": "0"})
    assert not is_main_process({"RANK": "1"})


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(2), nn.BatchNorm2d(2, affine=False), nn.BatchNorm3d(2)]
)
def test_normalisation_that_would_differ_between_processes_is_refused(layer):
    with pytest.raises(InvalidArgumentError, match=r"on a CPU support BatchNorm2d .* BatchNorm"):
        synchronise_batch_norm(nn.Sequential(nn.Identity(), layer), "cpu")


def test_cuda_uses_the_normalisation_of_pytorch():
    network = _network()
    weights = dict(network.named_parameters())
    converted = synchronise_batch_norm(network, "cuda:0")
    kinds = [type(module) for module in converted.modules() if hasattr(module, "running_mean")]
    assert kinds == [nn.SyncBatchNorm] * 2
    assert all(value is weights[name] for name, value in converted.named_parameters())


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("images"), 7)


def _infoshot(n_processes, *arguments):
    """Run the command on one core per process, under torchrun if there are several."""
    launcher = [sys.executable, "-m"]
    if n_processes > 1:
        launcher += ["torch.distributed.run", "--nproc-per-node", str(n_processes), "-m"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, "infoshot", *map(str, arguments)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_two_processes_extract_the_same_bits(root, tmp_path):
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "c", "conv4", make_backbone("conv4").state_dict())
    common = ["extract", "--dataset", "folder", "--root", root, "--checkpoint", tmp_path / "c",
              "--dtype", "float32", "--base-mean", "--batch-size", "4"]  # fmt: skip
    _infoshot(1, *common, "--out", tmp_path / "one")
    done = _infoshot(2, *common, "--out", tmp_path / "two", "--cache", tmp_path / "cache")
    assert done.stdout.count("21 images of 3 classes") == 1
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert torch.isfinite(read_features(tmp_path / "two").features).all()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("part-*")}
    assert kept
    _infoshot(2, *common, "--out", tmp_path / "again", "--cache", tmp_path / "cache")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "again").read_bytes()
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("part-*")} == kept


def test_two_processes_learn_as_one(root, tmp_path):
    """The losses agree to 0.01, and to 0.001 in the first epoch.

    The rest is rounding: one process with two threads instead of one differs by as much.
    """
    common = ["train", "--dataset", "folder", "--root", root, "--backbone", "conv4",
              "--epochs", "3", "--batch-size", "8", "--lr", "0.02"]  # fmt: skip
    losses, weights = [], []
    for n_processes in (1, 2):
        out = tmp_path / str(n_processes)
        done = _infoshot(n_processes, *common, "--out", out)
        assert done.stdout.count("Best of 3 epochs") == 1
        assert done.stderr.count("epoch 3/3: loss") == 1
        head, *lines = (json.loads(line) for line in (out / "log.jsonl").read_text().splitlines())
        assert head["processes"] == n_processes
        losses.append([line["loss"] for line in lines])
        weights.append(load_checkpoint(out / "last").backbone.state_dict())
    assert len(losses[0]) == 3
    assert losses[1] == pytest.approx(losses[0], abs=1e-2)
    assert losses[1][0] == pytest.approx(losses[0][0], abs=1e-3)
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, atol=0.05, rtol=0.05)

    done = _resume_after_one_epoch(root, tmp_path / "part", common)
    assert "Resuming after epoch 1 of 3" in done.stderr
    head, *lines = (tmp_path / "part" / "log.jsonl").read_text().splitlines()
    assert json.loads(head)["processes"] == 2
    assert [json.loads(line)["loss"] for line in lines] == pytest.approx(losses[0], abs=1e-2)


def _resume_after_one_epoch(root, out, common):
    """Interrupt one process after an epoch, and resume with two."""
    train_split, val_split = base_splits(open_dataset("folder", root))
    spec = make_backbone("conv4").input_spec
    images = load_training_images("folder", train_split, val_split, spec, n_workers=1)
    config = TrainConfig(backbone="conv4", epochs=3, batch_size=8, learning_rate=0.02)

    class Stop(Progress):
        def say(self, sentence):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_epochs(images, config, out, progress=Stop())
    return _infoshot(2, *common, "--out", out)
