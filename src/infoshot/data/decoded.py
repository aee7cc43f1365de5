"""Whole sets of images in memory, decoded once, a byte per pixel and colour.

Training images keep everything they show: those larger than needed are squashed to a common size,
and their true heights and widths stay beside them, so that crops are drawn with the shapes that
they have in the original.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from infoshot.data.images import ImageRecord, Pixels, decoder_threads
from infoshot.data.transforms import resize_and_crop
from infoshot.errors import DataError

Progress = Callable[[int], None]
Shaped = TypeVar("Shaped")


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
    n_threads: int,
    on_progress: Progress = lambda n_done: None,
) -> StoredImages:
    """Decode images for training; neither side is stored with more than ``largest`` pixels.

    Raises
    ------
    DataError
        If an image cannot be decoded; the sentence names it.
    """
    shrink = partial(_squashed, largest=largest)
    decoded = list(_decoded(records, shrink, n_threads, on_progress))
    sizes = torch.tensor([size for _, size in decoded])
    height = max(pixels.shape[0] for pixels, _ in decoded)
    width = max(pixels.shape[1] for pixels, _ in decoded)
    images = torch.empty(len(decoded), 3, height, width, dtype=torch.uint8)
    for number, (pixels, _) in enumerate(decoded):
        images[number] = _channels_first(_resized(pixels, height, width))
    return StoredImages(images, sizes)


def stored_crops(
    records: Sequence[ImageRecord],
    resize: int,
    crop: int,
    *,
    n_threads: int,
    on_progress: Progress = lambda n_done: None,
) -> Tensor:
    """Decode the published test crops, uint8, shape ``(image, 3, crop, crop)``."""

    def shape(pixels: Pixels) -> Tensor:
        return _channels_first(resize_and_crop(pixels, resize, crop))

    return torch.stack(list(_decoded(records, shape, n_threads, on_progress)))


def broken_images(
    records: Sequence[ImageRecord],
    *,
    n_threads: int,
    on_progress: Progress = lambda n_done: None,
) -> dict[int, str]:
    """Numbers of the images that do not decode, each with the sentence that says why."""
    broken = {}
    with decoder_threads(n_threads) as pool:
        for number, sentence in enumerate(pool.map(_try, records)):
            on_progress(1)
            if sentence:
                broken[number] = sentence
    return broken


def _decoded(
    records: Sequence[ImageRecord],
    shape: Callable[[Pixels], Shaped],
    n_threads: int,
    on_progress: Progress,
) -> Iterator[Shaped]:
    """Every image in its order, decoded and shaped by threads."""

    def load(record: ImageRecord) -> Shaped:
        return shape(record.location.pixels())

    with decoder_threads(n_threads) as pool:
        for future in [pool.submit(load, record) for record in records]:
            yield future.result()
            on_progress(1)


def _squashed(pixels: Pixels, largest: int) -> tuple[Pixels, tuple[int, int]]:
    height, width = pixels.shape[:2]
    return _resized(pixels, min(height, largest), min(width, largest)), (height, width)


def _resized(pixels: Pixels, height: int, width: int) -> Pixels:
    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(image)


def _channels_first(pixels: Pixels) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _try(record: ImageRecord) -> str | None:
    try:
        record.location.pixels()
    except DataError as error:
        return str(error)
    return None
