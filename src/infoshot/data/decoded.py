"""Whole sets of images in memory, decoded once, a byte per pixel and colour.

Training images keep everything they show: those larger than needed are squashed to a common size,
and their true heights and widths stay beside them, so that crops are drawn with the shapes that
they have in the original.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from infoshot.data.decoding import map_images
from infoshot.data.images import ImageRecord, Pixels
from infoshot.data.transforms import resize_and_crop
from infoshot.errors import DataError

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Images of one stored size, uint8, and their true heights and widths.

    ``images`` has shape ``(image, 3, height, width)``, ``sizes`` ``(image, 2)``.
    """

    images: Tensor
    sizes: Tensor


def stored_images(
    records: Sequence[ImageRecord],
    largest: int,
    *,
    n_workers: int,
    on_progress: Progress = lambda n_done: None,
) -> StoredImages:
    """Decode images for training; neither side is stored with more than ``largest`` pixels.

    Raises
    ------
    DataError
        If an image cannot be decoded; the sentence names it.
    """
    decoded, sizes = [], []
    for pixels, size in map_images(partial(_squashed, largest=largest), records, n_workers):
        decoded.append(pixels)
        sizes.append(size)
        on_progress(1)
    height, width = np.max([pixels.shape[:2] for pixels in decoded], axis=0)
    same = np.stack([_resized(pixels, height, width) for pixels in decoded])
    return StoredImages(channels_first(same), torch.tensor(sizes))


def stored_crops(
    records: Sequence[ImageRecord],
    resize: int,
    crop: int,
    *,
    n_workers: int,
    on_progress: Progress = lambda n_done: None,
) -> Tensor:
    """Decode the published test crops, uint8, shape ``(image, 3, crop, crop)``."""
    crops = []
    for pixels in map_images(partial(published_crop, resize=resize, crop=crop), records, n_workers):
        crops.append(pixels)
        on_progress(1)
    return channels_first(np.stack(crops))


def broken_images(
    records: Sequence[ImageRecord],
    *,
    n_workers: int,
    on_progress: Progress = lambda n_done: None,
) -> dict[int, str]:
    """Numbers of the images that do not decode, each with the sentence that says why."""
    broken = {}
    for number, sentence in enumerate(map_images(_why_broken, records, n_workers)):
        on_progress(1)
        if sentence:
            broken[number] = sentence
    return broken


def published_crop(record: ImageRecord, resize: int, crop: int) -> Pixels:
    """Published test crop of an image."""
    return resize_and_crop(record.location.pixels(), resize, crop)


def channels_first(pixels: Pixels) -> Tensor:
    """Batch of pixels, ``(image, height, width, 3)``, as a network wants them."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def _squashed(record: ImageRecord, largest: int) -> tuple[Pixels, tuple[int, int]]:
    pixels = record.location.pixels()
    height, width = pixels.shape[:2]
    return _resized(pixels, min(height, largest), min(width, largest)), (height, width)


def _resized(pixels: Pixels, height: int, width: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image)


def _why_broken(record: ImageRecord) -> str | None:
    try:
        record.location.pixels()
    except DataError as error:
        return str(error)
    return None
