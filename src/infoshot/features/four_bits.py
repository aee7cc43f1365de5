"""Features in four bits: the square root of each value in 16 steps of its row's largest.

Two values share a byte, the first in the lower half. Half the size of eight bits.
"""

import torch
from torch import Tensor

_STEPS = 15


def pack(features: Tensor) -> tuple[Tensor, Tensor]:
    """Round an even number of features, none negative; return bytes and scales of the rows.

    Examples
    --------
    >>> packed, scale = pack(torch.tensor([[0.0, 1.0, 4.0, 9.0]]))
    >>> unpack(packed, scale).round(decimals=4).tolist()
    [[0.0, 1.0, 4.0, 9.0]]
    """
    scale = features.float().amax(1)
    shares = features.float() / scale.clamp(min=torch.finfo().tiny).unsqueeze(1)
    steps = (shares.sqrt() * _STEPS).round().to(torch.uint8)
    return steps[:, 0::2] | (steps[:, 1::2] << 4), scale


def unpack(packed: Tensor, scale: Tensor) -> Tensor:
    """Return the features that :func:`pack` rounded, float32."""
    steps = torch.stack((packed & 15, packed >> 4), dim=2).flatten(1)
    return (steps.float() / _STEPS).square_().mul_(scale.float().unsqueeze(1))
