"""Weights of convolutions in 8 bits, with one scale per output channel.

A large convolution is stored as int8 under its own name, with the float32 scales of its output
channels under ``NAME/scale``: the weight is their product. The largest weight of a channel is 127
times its scale. Small convolutions, biases and batch normalisations stay in float32: they take next
to no space, and rounding them costs more.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

_SCALE = "/scale"
_LEVELS = 127
_FEWEST = 4096  # weights of a convolution that is stored in 8 bits


def quantise_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Round large convolutions to 8 bits; everything else is returned as it is.

    Examples
    --------
    >>> weight = torch.linspace(-1, 1, 8192).reshape(2, 4096, 1, 1)
    >>> stored = quantise_weights({"conv.weight": weight})
    >>> stored["conv.weight"].dtype, sorted(stored)
    (torch.int8, ['conv.weight', 'conv.weight/scale'])
    """
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() != 4 or weight.numel() < _FEWEST or not weight.is_floating_point():
            stored[name] = weight
            continue
        values = weight.detach().float()
        scale = values.flatten(1).abs().amax(1) / _LEVELS
        divisor = scale.where(scale > 0, 1.0).reshape(-1, 1, 1, 1)
        stored[name] = (values / divisor).round().to(torch.int8)
        stored[name + _SCALE] = scale
    return stored


def restore_weights(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights as floating-point numbers, whether they were stored in 8 bits or not.

    Raises
    ------
    ValueError
        If there is not one scale per output channel.
    """
    weights = dict(stored)
    for name, values in stored.items():
        if values.dtype != torch.int8 or name + _SCALE not in stored:
            continue
        scale = weights.pop(name + _SCALE)
        if scale.shape != values.shape[:1] or values.dim() == 0 or not scale.is_floating_point():
            raise ValueError(f"'{name}' must have one scale per output channel")
        weights[name] = values * scale.float().reshape(-1, *[1] * (values.dim() - 1))
    return weights
