import dataclasses

import pytest
import torch
import torch.distributed as dist

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.core.progress import Progress
from infoshot.distributed import Ranks
from infoshot.features.extract import Extraction
from infoshot.images import open_dataset
from infoshot.images.augmentation import augment, draw_augmentation
from infoshot.training import TrainConfig, load_training_images, run_epochs
from infoshot.training.training_images import base_splits
from tests.encoders import extract_features
from tests.image_folders import make_folders

pytestmark = pytest.mark.gpu
CONFIG = TrainConfig(backbone="conv4", epochs=3, batch_size=16, learning_rate=0.02, val_tasks=20)
GPU = Ranks(device="cuda:0")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("images"), 12)


def _images(root):
    train_split, val_split = base_splits(open_dataset("folder", root))
    spec = make_backbone("conv4").input_spec
    return load_training_images("folder", train_split, val_split, spec, n_workers=2)


def test_augmentation_is_the_same_on_both_devices():
    images = torch.randint(0, 256, (64, 3, 84, 84), generator=torch.Generator().manual_seed(0))
    sizes = torch.full((64, 2), 84)
    what = draw_augmentation(0, 3, torch.arange(64), sizes)
    there = draw_augmentation(0, 3, torch.arange(64, device="cuda"), sizes.cuda())
    torch.testing.assert_close(there.box.cpu(), what.box)
    assert torch.equal(there.flip.cpu(), what.flip)
    out = augment(images.byte(), what, 84)
    torch.testing.assert_close(
        augment(images.byte().cuda(), there, 84).cpu(), out, atol=2e-3, rtol=0
    )


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # we multiply in float32
@pytest.mark.parametrize("compiled", [False, True])
def test_losses_equal_those_of_a_cpu_up_to_half_precision(root, tmp_path, compiled):
    images = _images(root)
    here = run_epochs(images, CONFIG, tmp_path / "cpu")
    there = run_epochs(images, CONFIG, tmp_path / "gpu", ranks=GPU, compile=compiled)
    assert [r.loss for r in there] == pytest.approx([r.loss for r in here], rel=0.05)


def test_interrupted_run_resumes(root, tmp_path):
    images = _images(root)

    class Stop(Progress):
        def say(self, sentence):
            if sentence.startswith("epoch 2/"):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_epochs(images, CONFIG, tmp_path / "part", ranks=GPU, progress=Stop())
    part = run_epochs(images, CONFIG, tmp_path / "part", ranks=GPU)
    whole = run_epochs(images, CONFIG, tmp_path / "whole", ranks=GPU)
    assert len(part) == 3
    assert part[-1].loss == pytest.approx(whole[-1].loss, rel=0.02)


def test_features_equal_those_of_a_cpu(root, tmp_path):
    run_epochs(_images(root), dataclasses.replace(CONFIG, epochs=1), tmp_path, ranks=GPU)
    split = open_dataset("folder", root).split("test")
    here = extract_features(split, load_checkpoint(tmp_path / "last"), Extraction())
    there = extract_features(split, load_checkpoint(tmp_path / "last"), Extraction(device="cuda"))
    torch.testing.assert_close(there, here, atol=1e-4, rtol=1e-4)


def _learn(rank, root, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    ranks = Ranks(rank, 2, "cuda:0")
    records = run_epochs(_images(root), CONFIG, folder / "two", ranks=ranks)
    if ranks.is_main:
        torch.save([record.loss for record in records], folder / "losses.pt")
    dist.destroy_process_group()


def test_two_processes_on_one_gpu_equal_one(root, tmp_path):
    torch.multiprocessing.spawn(_learn, (root, tmp_path), nprocs=2)
    losses = torch.load(tmp_path / "losses.pt")
    alone = run_epochs(_images(root), CONFIG, tmp_path / "one", ranks=GPU)
    assert losses == pytest.approx([record.loss for record in alone], rel=0.05)
