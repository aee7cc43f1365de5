"""Two gloo processes take the optimisation steps of one."""

import dataclasses
import os

import pytest
import torch
import torch.distributed as dist

from infoshot.backbones import make_backbone
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.images import open_dataset
from infoshot.training import base_splits, load_system, load_training_images, run_episodes
from infoshot.training.episodic.episodic_config import resolve_episodic_config
from tests.image_folders import make_folders

NET = "tests.heads:TinyNet"
SYSTEMS = tuple(f"tests.heads:{name}" for name in ("Linear", "MapHead", "ImageHead"))
SETTINGS = {
    "epochs": 2, "episodes_per_epoch": 8, "tasks_per_step": 4, "n_way": 3, "n_query": 2,
    "val_tasks": 15, "learning_rate": 0.01, "optimizer": "sgd",
}  # fmt: skip


def _train(ranks, root, out):
    """Train all systems; return what their records say."""
    splits = base_splits(open_dataset("folder", root))
    images = load_training_images("folder", *splits, make_backbone(NET).input_spec, n_workers=1)
    found = []
    for number, system in enumerate(SYSTEMS):
        config = resolve_episodic_config(system, NET, settings=SETTINGS)
        records = run_episodes(images, config, out / str(number), ranks=ranks)
        found.append([dataclasses.astuple(record)[:6] for record in records])
    return found


def _worker(rank, root, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(_train(Ranks(rank, 2), root, folder / "two"), folder / f"{rank}.pt")
    dist.destroy_process_group()
    os._exit(0)  # PyTorch's threads sometimes abort an ordinary exit on a busy machine
    os._exit(0)  # on a busy machine PyTorch's threads sometimes abort an ordinary exit


def test_two_processes_take_the_steps_of_one(tmp_path):
    root = make_folders(tmp_path / "data", 5, size=(20, 20))
    torch.multiprocessing.spawn(_worker, (root, tmp_path), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first == second
    single = _train(SINGLE_PROCESS, root, tmp_path / "one")
    for ours, theirs in zip(first, single, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one == pytest.approx(other, rel=1e-4)
    for number in range(len(SYSTEMS)):
        two, one = (load_system(tmp_path / name / str(number) / "last") for name in ("two", "one"))
        for part, other in ((two.encoder.backbone, one.encoder.backbone), (two.head, one.head)):
            expected = other.state_dict()
            for name, value in part.state_dict().items():
                torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-4)
