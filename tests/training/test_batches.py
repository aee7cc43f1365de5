import os

import numpy as np
import pytest
import torch
from PIL import Image

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import InputSpec
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.images import open_dataset
from infoshot.images.augmentation import augment, draw_augmentation
from infoshot.images.in_memory import StoredImages, load_images
from infoshot.training import TrainConfig
from infoshot.training.batches import Batches
from infoshot.training.training_images import TrainingImages
from tests.image_folders import make_folders

SPEC = InputSpec(crop=8, resize=10)


def _images(n_images=50, size=12):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n_images, 3, size, size), generator=generator).byte()
    sizes = torch.full((n_images, 2), size)
    labels = torch.arange(n_images)  # a different label for every image, to identify them
    return TrainingImages(StoredImages(pixels, sizes), labels, (), None, None, {})


def _batches(images=None, *, batch_size=8, seed=0, ranks=SINGLE_PROCESS, **changes):
    images = images or _images()
    config = TrainConfig(backbone="conv4", batch_size=batch_size, seed=seed, **changes)
    return Batches(images, SPEC, config, ranks=ranks)


def test_epoch_has_every_image_once_except_the_remainder():
    batches = _batches()
    seen = [set(torch.cat([y for _, y in batches.epoch(epoch)]).tolist()) for epoch in range(30)]
    assert len(batches) == 6
    assert all(len(images) == 48 == batches.n_images for images in seen)
    assert set.union(*seen) == set(range(50))


def test_order_differs_between_epochs_and_seeds_and_is_uniform():
    first = [torch.cat([y for _, y in _batches(seed=0).epoch(epoch)]) for epoch in (0, 1)]
    other = torch.cat([y for _, y in _batches(seed=1).epoch(0)])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other)
    again = torch.cat([y for _, y in _batches(seed=0).epoch(1)])
    assert torch.equal(again, first[1])
    starts = torch.tensor([next(_batches(seed=seed).epoch(0))[1][0] for seed in range(1000)])
    counts = starts.bincount(minlength=50).double()
    chi_squared = ((counts - 20) ** 2 / 20).sum()
    assert chi_squared < 85  # 49 degrees of freedom: 0.1 % of all draws are beyond


def test_images_of_a_batch_are_augmented_independently():
    images = _images()
    for x, y in _batches(images, seed=3).epoch(4):
        for row, number in zip(x, y, strict=True):
            index = number.view(1)
            what = draw_augmentation(3, 4, index, images.train.sizes[index])
            alone = SPEC.normalise(augment(images.train.images[index], what, 8))
            torch.testing.assert_close(row, alone[0])


def test_processes_share_the_batches_of_one():
    whole = list(_batches().epoch(2))
    parts = [list(_batches(ranks=Ranks(rank, 4)).epoch(2)) for rank in range(4)]
    for step, (_, y) in enumerate(whole):
        shared = torch.cat([part[step][1] for part in parts])
        assert sorted(shared.tolist()) == sorted(y.tolist())


def test_batch_must_be_shared_evenly():
    with pytest.raises(
        InvalidArgumentError, match=r"multiple of the number of processes, 3; got 256"
    ):
        TrainConfig(backbone="conv4").check_processes(3)
    few = [list(_batches(_images(5), ranks=Ranks(rank, 2)).epoch(0)) for rank in range(2)]
    assert [len(y) for part in few for _, y in part] == [2, 2]
    with pytest.raises(DataError, match="2 images are too few for 4 processes"):
        _batches(_images(2), ranks=Ranks(0, 4))


def test_fewer_images_than_a_batch_are_one_batch():
    batches = _batches(_images(5), batch_size=8)
    assert [len(y) for _, y in batches.epoch(0)] == [5]


def test_images_of_one_size_are_stored_as_they_are(tmp_path):
    split = open_dataset("folder", make_folders(tmp_path, 2, (30, 40))).split("train")
    stored = load_images(split.records, 168, n_workers=2)
    assert stored.images.shape == (8, 3, 30, 40)
    assert stored.sizes.tolist() == [[30, 40]] * 8
    for record, image in zip(split.records, stored.images, strict=True):
        assert np.array_equal(image.permute(1, 2, 0), record.location.pixels())


def test_one_large_image_does_not_blow_up_the_others(tmp_path):
    make_folders(tmp_path, 30, (20, 20), {"train": "ab"})
    Image.new("RGB", (400, 500)).save(tmp_path / "train" / "a" / "large.png")
    split = open_dataset("folder", tmp_path).split("train")
    assert load_images(split.records, 168, n_workers=2).images.shape == (61, 3, 20, 20)


def test_images_that_cannot_fit_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    split = open_dataset("folder", make_folders(tmp_path, 2, (30, 40))).split("train")
    with pytest.raises(DataError, match="8 images of 30 x 40 pixels take 0 GB of memory"):
        load_images(split.records, 168, n_workers=2)


def test_large_images_are_squashed_and_their_shapes_remembered(tmp_path):
    make_folders(tmp_path, 1, (300, 200), {"train": "ab"})
    make_folders(tmp_path / "more", 1, (90, 100), {"train": "cd"})
    for name in "cd":
        (tmp_path / "more" / "train" / name).rename(tmp_path / "train" / name)
    (tmp_path / "more" / "train").rmdir()
    (tmp_path / "more").rmdir()
    split = open_dataset("folder", tmp_path).split("train")
    stored = load_images(split.records, 168, n_workers=2)
    assert stored.images.shape == (4, 3, 168, 168)
    assert stored.sizes.tolist() == [[300, 200]] * 2 + [[90, 100]] * 2
    assert load_images(split.records[2:], 168, n_workers=2).images.shape == (2, 3, 90, 100)
    # Crops keep their shape in the original: aspects of boxes in pixels stay within 3/4 to 4/3.
    indices = torch.arange(2).repeat(500)
    box = draw_augmentation(0, 0, torch.arange(1000), stored.sizes[indices]).box
    aspect = box[:, 2] * 200 / (box[:, 3] * 300)
    assert aspect.min() >= 3 / 4 - 1e-9
    assert aspect.max() <= 4 / 3 + 1e-9
    assert aspect.min() < 0.8
    assert aspect.max() > 1.25


def _drawn(**settings):
    sizes = torch.tensor([[84, 84]]).expand(5000, 2)
    return draw_augmentation(0, 0, torch.arange(5000), sizes, **settings)


def test_augmentation_settings_bound_what_is_drawn():
    box = _drawn(crop_area=0.5, crop_aspect=(0.9, 1.2)).box
    area, aspect = box[:, 2] * box[:, 3], box[:, 2] / box[:, 3]
    assert 0.5 - 1e-9 <= area.min() < 0.52
    assert 0.9 - 1e-9 <= aspect.min() < 0.91
    assert 1.19 < aspect.max() <= 1.2 + 1e-9
    assert torch.equal(_drawn(jitter=0).jitter, torch.ones(5000, 3, dtype=torch.float64))
    assert 0.9 <= _drawn(jitter=0.1).jitter.min() < 0.901
    assert not _drawn(flip=False).flip.any()
    # Each setting changes its own part only.
    assert torch.equal(_drawn(jitter=0, flip=False).box, _drawn().box)


def test_batches_use_the_augmentation_settings():
    images = _images(size=8)
    settings = {"crop_area": 1.0, "crop_aspect": (1.0, 1.0), "jitter": 0, "flip": False}
    for x, y in _batches(images, **settings).epoch(0):
        whole = SPEC.normalise(images.train.images[y].float() / 255)
        torch.testing.assert_close(x, whole, atol=1e-5, rtol=0)


def test_training_crops_may_have_another_size_than_test_crops():
    """Pillow resizes the whole image in the same way, except that it rounds to whole numbers."""
    images = _images(size=32)
    settings = {"crop_area": 1.0, "crop_aspect": (1.0, 1.0), "jitter": 0, "flip": False}
    for x, y in _batches(images, **settings, train_crop=16).epoch(0):
        pixels = [image.permute(1, 2, 0).numpy() for image in images.train.images[y]]
        small = [Image.fromarray(p).resize((16, 16), Image.Resampling.BILINEAR) for p in pixels]
        expected = torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).float() / 255
        torch.testing.assert_close(x, SPEC.normalise(expected), atol=2 / 255 / 0.22, rtol=0)
