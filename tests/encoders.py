"""Helpers for tests of encoders: images, network inputs, features, one-sentence messages."""

import numpy as np
import torch
from PIL import Image

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.features.extract import Extraction, encode_images
from infoshot.images import open_dataset
from infoshot.images.decoding import resize_and_crop


def make_split(root):
    """Five images of two classes."""
    generator = np.random.default_rng(0)
    for number in range(5):
        path = root / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (50, 60 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return open_dataset("folder", root).split("test")


def network_inputs(split, spec):
    """Compute the input of a network in separate steps."""
    crops = [resize_and_crop(r.location.pixels(), spec.resize, spec.crop) for r in split.records]
    x = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).contiguous().float() / 255
    return spec.normalise(x)


def one_sentence(caught):
    """Return the message of an error, which must be a single sentence."""
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


def extract_features(split, encoder, how=None, **more):
    """Compute the features of a split, or raise for an image that cannot be read."""
    locations = [record.location for record in split.records]
    how = how or Extraction()
    return encode_images(locations, lambda: encoder, how, strict=True, **more).features


def save_conv4(folder):
    """Save a checkpoint with random weights, always the same, and return its folder."""
    torch.manual_seed(0)
    save_checkpoint(folder, "conv4", make_backbone("conv4").eval().state_dict())
    return folder
