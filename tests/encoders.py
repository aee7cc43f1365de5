"""What the tests of encoders share: photographs, what a network is given of them, one sentence."""

import numpy as np
import torch
from PIL import Image

from infoshot.images import open_dataset
from infoshot.images.transforms import network_input, resize_and_crop


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
    """What a network must be given, by the longest way."""
    crops = [resize_and_crop(r.location.pixels(), spec.resize, spec.crop) for r in split.records]
    x = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).contiguous().float() / 255
    return network_input(x, spec.mean, spec.std)


def one_sentence(caught):
    """Message of an error, which must be one line and end like a sentence."""
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message
