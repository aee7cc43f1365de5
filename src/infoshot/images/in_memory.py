"""Sets of images decoded into memory, one byte per pixel and colour.

Training images are stored whole. They are resized to a common size without keeping their aspect
ratios; their original heights and widths are stored beside them, so that random crops have the
shapes that they have in the original.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.core.memory import total_memory
from infoshot.core.pixels import Pixels
from infoshot.images.decoding import ImageRecord, map_images, read_crop

Progress = Callable[[int], None]
_SAMPLE = 200


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Images of one stored size, uint8, and their original heights and widths.

    ``images`` has shape ``(image, 3, height, width)``, ``sizes`` ``(image, 2)``.
    """

    images: Tensor
    sizes: Tensor


def load_images(
    records: Sequence[ImageRecord],
    largest: int,
    *,
    n_workers: int,
    on_progress: Progress = lambda n_done: None,
) -> StoredImages:
    """Decode images for training; each side is stored with at most ``largest`` pixels.

    Raises
    ------
    DataError
        If an image cannot be decoded; the message names it.
    """
    height, width = _stored_size(records, largest)
    images = _allocate(len(records), height, width)
    sizes = torch.empty(len(records), 2, dtype=torch.int64)
    squash = partial(_squash, height=height, width=width)
    for number, (pixels, size) in enumerate(map_images(squash, records, n_workers)):
        images[number] = torch.from_numpy(pixels).permute(2, 0, 1)
        sizes[number] = torch.tensor(size)
        on_progress(1)
    return StoredImages(images, sizes)


def load_crops(
    records: Sequence[ImageRecord],
    resize: int,
    crop: int,
    *,
    n_workers: int,
    on_progress: Progress = lambda n_done: None,
) -> Tensor:
    """Decode the published test crops, uint8, shape ``(image, 3, crop, crop)``."""
    crops = _allocate(len(records), crop, crop)
    locations = [record.location for record in records]
    read = partial(read_crop, resize=resize, crop=crop)
    for number, (_, pixels) in enumerate(map_images(read, locations, n_workers)):
        crops[number] = torch.from_numpy(pixels).permute(2, 0, 1)
        on_progress(1)
    return crops


def _stored_size(records: Sequence[ImageRecord], largest: int) -> tuple[int, int]:
    """90th percentiles of height and width in a sample of the images; at most ``largest``."""
    some = records[:: max(1, len(records) // _SAMPLE)]
    shapes = np.array([record.location.pixels().shape[:2] for record in some])
    height, width = np.percentile(shapes, 90, axis=0, method="higher").astype(int)
    return min(int(height), largest), min(int(width), largest)


def _allocate(n_images: int, height: int, width: int) -> Tensor:
    """Allocate memory for images, uint8; raise ``DataError`` if the machine has too little."""
    needed = n_images * 3 * height * width
    available = total_memory()
    if needed > available:
        raise DataError(
            f"{n_images} images of {height} x {width} pixels take {needed / 1e9:.0f} GB of memory; "
            f"this machine has {available / 1e9:.0f} GB."
        )
    return torch.empty(n_images, 3, height, width, dtype=torch.uint8)


def _squash(record: ImageRecord, height: int, width: int) -> tuple[Pixels, tuple[int, int]]:
    pixels = record.location.pixels()
    size = pixels.shape[0], pixels.shape[1]
    if size != (height, width):
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
    return np.array(pixels), size
