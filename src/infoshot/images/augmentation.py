r"""The published augmentation of training images, in batches on any device.

It has two separate steps. *Drawing* chooses what happens to each image, from (seed, moment, image)
only, where the moment is an epoch or an episode, so that batches, processes and restarts do not
matter. *Applying* changes a batch. Crops have 0.08 to 1 of the area of the image and an aspect
ratio of 3/4 to 4/3, and are resized to the output size. Then brightness, contrast and colour are
each changed by a factor of 0.6 to 1.4:

- brightness :math:`f x`
- contrast :math:`f x + (1 - f) \bar g`, with :math:`\bar g` the mean grey of the image
- colour :math:`f x + (1 - f) g`, with :math:`g = 0.299 R + 0.587 G + 0.114 B` of each pixel

and half of the images are mirrored.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.rng import random_bits

CROP_AREA = 0.08
CROP_ASPECT = (3 / 4, 4 / 3)
JITTER = 0.4
_ATTEMPTS = 10
_AUGMENT = 2  # stream of random numbers


@dataclass(frozen=True, eq=False)
class Augmentation:
    """What happens to each image of a batch.

    ``box`` holds left, top, width and height as shares of the image, shape ``(batch, 4)``;
    ``flip`` is boolean; ``jitter`` the factors of brightness, contrast and colour, ``(batch, 3)``.
    """

    box: Tensor
    flip: Tensor
    jitter: Tensor


def draw_augmentation(
    seed: int,
    moment: int | Tensor,
    indices: Tensor,
    sizes: Tensor,
    *,
    crop_area: float = CROP_AREA,
    crop_aspect: tuple[float, float] = CROP_ASPECT,
    jitter: float = JITTER,
    flip: bool = True,
) -> Augmentation:
    """Draw what happens to the images with these numbers at this moment.

    Parameters
    ----------
    seed
        Whole number.
    moment
        The number of the epoch, or of the episode of each image, int64, shape ``(batch,)``.
    indices
        Numbers of the images in their data set, int64, shape ``(batch,)``.
    sizes
        Height and width of each image in pixels, shape ``(batch, 2)``.
    crop_area
        Smallest share of the image's area that a crop covers; the largest is 1.
    crop_aspect
        Smallest and largest ratio of width to height of a crop.
    jitter
        Largest relative change of brightness, contrast and colour; 0 turns it off.
    flip
        Whether to mirror half of the images.
    """
    # One number per (moment, image): image sets are far smaller than 2**32.
    bits = random_bits(seed, _AUGMENT, indices + (moment << 32), (4 * _ATTEMPTS + 4,))
    u = bits.double() / 2**32
    mirrored = u[:, 0] < (0.5 if flip else 0)
    factors = 1 + jitter * (2 * u[:, 1:4] - 1)
    candidates = u[:, 4:].view(-1, _ATTEMPTS, 4)
    boxes = _boxes(candidates, sizes.double(), crop_area, crop_aspect)
    return Augmentation(boxes, mirrored, factors)


def augment(images: Tensor, what: Augmentation, size: int) -> Tensor:
    """Crop, mirror and jitter a batch.

    Parameters
    ----------
    images
        uint8, shape ``(batch, 3, height, width)``.
    what
        What happens to each of them.
    size
        Height and width of the output.

    Returns
    -------
    Values from 0 to 1, float32, shape ``(batch, 3, size, size)``.
    """
    left, top, width, height = what.box.to(images.device, torch.float32).unbind(-1)
    rows = _resampling(top, height, images.shape[2], size)
    columns = _resampling(left, width, images.shape[3], size)
    columns = columns.where(~what.flip.to(images.device).view(-1, 1, 1), columns.flip(1))
    x = rows.unsqueeze(1) @ (images.float() / 255) @ columns.mT.unsqueeze(1)
    return _jitter(x, what.jitter.to(x))


def _resampling(start: Tensor, length: Tensor, n_pixels: int, size: int) -> Tensor:
    """Weights of the pixels of one axis for each output pixel, ``(batch, size, n_pixels)``.

    Linear interpolation; where the crop has more pixels than the output, averages with triangular
    weights that are as much wider, as in Pillow, so that nothing is aliased.
    """
    scale = length * n_pixels / size
    place = torch.arange(size, device=start.device) + 0.5
    centres = (start * n_pixels).unsqueeze(1) + scale.unsqueeze(1) * place
    pixels = torch.arange(n_pixels, device=start.device) + 0.5
    reach = scale.clamp(min=1).view(-1, 1, 1)
    weights = (1 - (pixels - centres.unsqueeze(2)).abs() / reach).clamp_(min=0)
    return weights / weights.sum(2, keepdim=True)


def _boxes(u: Tensor, sizes: Tensor, smallest: float, aspects: tuple[float, float]) -> Tensor:
    """First of the candidate crops that fits into the image, else the largest allowed one."""
    height, width = sizes.unbind(-1)
    low, high = map(math.log, aspects)
    area = (smallest + (1 - smallest) * u[..., 0]) * (height * width).unsqueeze(-1)
    aspect = (low + (high - low) * u[..., 1]).exp()
    w, h = (area * aspect).sqrt(), (area / aspect).sqrt()
    fits = (w <= width.unsqueeze(-1)) & (h <= height.unsqueeze(-1))
    first = fits.double().argmax(-1, keepdim=True)
    w, h, x, y = (row.gather(-1, first).squeeze(-1) for row in (w, h, u[..., 2], u[..., 3]))
    ratio = (width / height).clamp(math.exp(low), math.exp(high))
    none = ~fits.any(-1)
    w = torch.where(none, torch.minimum(width, height * ratio), w)
    h = torch.where(none, torch.minimum(height, width / ratio), h)
    left = (width - w) * torch.where(none, 0.5, x)
    top = (height - h) * torch.where(none, 0.5, y)
    return torch.stack((left / width, top / height, w / width, h / height), -1)


def _jitter(x: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast, colour, one after the other, each clipped to what a pixel can be."""
    brightness, contrast, colour = (factors[:, i].view(-1, 1, 1, 1) for i in range(3))
    x = (x * brightness).clamp_(0, 1)
    mean_grey = _grey(x).mean((1, 2, 3), keepdim=True)
    x = torch.lerp(mean_grey, x, contrast).clamp_(0, 1)
    return torch.lerp(_grey(x), x, colour).clamp_(0, 1)


def _grey(x: Tensor) -> Tensor:
    return (x * x.new_tensor((0.299, 0.587, 0.114)).view(1, 3, 1, 1)).sum(1, keepdim=True)
