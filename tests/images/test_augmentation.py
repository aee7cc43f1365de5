import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from scipy import stats

from infoshot.images.augmentation import (
    Augmentation,
    augment,
    draw_augmentation,
)

WHOLE = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
SAME = torch.ones(1, 3)
KEEP = torch.tensor([False])


def _smooth(height=40, width=40):
    """A smooth image, as photographs are: two ways to interpolate nearly agree."""
    noise = np.random.default_rng(0).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def _sizes(n_images, height, width):
    return torch.tensor([[height, width]]).expand(n_images, 2)


def _batch(pixels):
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]


def _image(tensor):
    return (tensor[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()


def test_augmentation_that_changes_nothing_returns_the_image():
    pixels = _smooth()
    out = augment(_batch(pixels), Augmentation(WHOLE, KEEP, SAME), 40)
    np.testing.assert_array_equal(_image(out), pixels)


def test_flip_mirrors():
    pixels = _smooth()
    out = augment(_batch(pixels), Augmentation(WHOLE, torch.tensor([True]), SAME), 40)
    np.testing.assert_array_equal(_image(out), pixels[:, ::-1])


def test_crop_equals_pillow():
    pixels = _smooth()
    box = torch.tensor([[0.25, 0.1, 0.5, 0.6]])  # left 10, top 4, width 20, height 24 of 40
    out = augment(_batch(pixels), Augmentation(box, KEEP, SAME), 48)
    image = Image.fromarray(pixels)
    expected = image.resize((48, 48), Image.Resampling.BILINEAR, box=(10, 4, 30, 28))
    # Pillow does not use pixels outside the crop, augment does: compare the inside.
    inside = slice(2, -2)
    difference = _image(out).astype(int)[inside, inside] - np.asarray(expected)[inside, inside]
    assert np.abs(difference).max() <= 2


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("size", [17, 30, 84])
def test_large_crops_are_averaged_as_in_pillow(size, flip):
    """Noise shows aliasing: without averaging its contrast would stay the same."""
    pixels = np.random.default_rng(0).integers(0, 256, (100, 140, 3), dtype=np.uint8)
    box = torch.tensor([[0.1, 0.05, 0.8, 0.9]])  # left 14, top 5, width 112, height 90
    out = _image(augment(_batch(pixels), Augmentation(box, torch.tensor([flip]), SAME), size))
    image = Image.fromarray(pixels)
    resized = image.resize((size, size), Image.Resampling.BILINEAR, box=(14, 5, 126, 95))
    expected = np.asarray(resized)[:, ::-1] if flip else np.asarray(resized)
    # Pillow does not use pixels outside the crop, augment does: compare the inside.
    difference = out.astype(int)[2:-2, 2:-2] - expected[2:-2, 2:-2]
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.4])
@pytest.mark.parametrize(
    ("place", "enhancer"),
    [(0, ImageEnhance.Brightness), (1, ImageEnhance.Contrast), (2, ImageEnhance.Color)],
)
def test_jitter_equals_pillow(place, enhancer, factor):
    pixels = _smooth()
    jitter = SAME.clone()
    jitter[0, place] = factor
    out = augment(_batch(pixels), Augmentation(WHOLE, KEEP, jitter), 40)
    expected = np.asarray(enhancer(Image.fromarray(pixels)).enhance(factor)).astype(int)
    assert np.abs(_image(out) - expected).max() <= 2


def test_draws_depend_on_seed_epoch_and_image_only():
    everything = draw_augmentation(3, 7, torch.arange(100), _sizes(100, 84, 84))
    alone = draw_augmentation(3, 7, torch.tensor([42]), _sizes(1, 84, 84))
    assert torch.equal(everything.box[42:43], alone.box)
    assert torch.equal(everything.jitter[42:43], alone.jitter)
    for other in (draw_augmentation(4, 7, torch.arange(100), _sizes(100, 84, 84)),
                  draw_augmentation(3, 8, torch.arange(100), _sizes(100, 84, 84))):  # fmt: skip
        assert not torch.equal(everything.box, other.box)


def test_draws_have_the_published_distributions():
    drawn = draw_augmentation(0, 0, torch.arange(20_000), _sizes(20_000, 84, 84))
    left, top, width, height = drawn.box.unbind(-1)
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + width <= 1 + 1e-9).all()
    assert (top + height <= 1 + 1e-9).all()
    area, aspect = width * height, width / height
    assert area.min() >= 0.08 - 1e-9
    assert area.max() <= 1
    assert aspect.min() >= 3 / 4 - 1e-9
    assert aspect.max() <= 4 / 3 + 1e-9
    assert drawn.flip.double().mean().item() == pytest.approx(0.5, abs=0.02)
    for factors in drawn.jitter.unbind(-1):
        assert stats.kstest((factors.numpy() - 0.6) / 0.8, "uniform").pvalue > 1e-3
    # Small crops always fit a square image, so among them the area is uniform.
    small = area[area < 0.5].numpy()
    assert stats.kstest((small - 0.08) / 0.42, "uniform").pvalue > 1e-3


def test_crop_of_a_long_image_stays_inside():
    drawn = draw_augmentation(0, 0, torch.arange(500), _sizes(500, 20, 200))
    left, top, width, height = drawn.box.unbind(-1)
    assert (left + width <= 1 + 1e-9).all()
    assert (top + height <= 1 + 1e-9).all()
    assert ((width * 200) / (height * 20) <= 4 / 3 + 1e-9).all()
