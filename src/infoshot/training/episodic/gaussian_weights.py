r"""Gaussian class weights of LEO and AWGIM: a mean and a scale that a decoder computes.

A decoder returns :math:`(\mu, u)` for every class. The scale is

.. math:: \sigma = \max(e^u - 1 + s, \; 10^{-10})

so that a decoder of small weights starts with the scale s. For the weights of a linear classifier
s is Glorot's, :math:`\sqrt{2 / (d + K)}` for d inputs and K classes.
"""

import math

from torch import Tensor

SMALLEST_SCALE = 1e-10


def split_gaussian(decoded: Tensor, start: float) -> tuple[Tensor, Tensor]:
    """Return mean and scale, the halves of the last axis; ``start`` is the scale of a zero."""
    mean, raw = decoded.chunk(2, dim=-1)
    return mean, (raw.expm1() + start).clamp(min=SMALLEST_SCALE)


def glorot_scale(dim: int, n_way: int) -> float:
    """Return the scale of initial weights of a linear classifier."""
    return math.sqrt(2 / (dim + n_way))
