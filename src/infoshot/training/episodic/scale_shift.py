r"""Scales and shifts that adapt a network whose weights are frozen.

Every convolution of the backbone gets a scale for each of its kernels and a shift for each of its
filters,

.. math:: (W \odot \Phi_1) * x + (b + \Phi_2), \qquad
          \Phi_1 : (out, in, 1, 1), \quad \Phi_2 : (out)

which start at 1 and 0 and are the only parameters that learn. Afterwards they can be folded into
the weights, so that an ordinary backbone remains: scales into the weights of the convolution,
shifts into its bias or, if it has none, into the running mean m of the batch normalisation that
follows it, because :math:`(x + \Phi_2) - m = x - (m - \Phi_2)`.

In training mode batch normalisation subtracts the mean of the batch, and with it any shift in front
of it. Shifts therefore learn only while batch normalisation is in evaluation mode.

Reference: Q. Sun, Y. Liu, T.-S. Chua, B. Schiele. Meta-Transfer Learning for Few-Shot Learning.
CVPR 2019. A scale belongs to a kernel, a pair of an input and an output channel, as in the authors'
code.
"""

from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call

from infoshot.backbones import Backbone
from infoshot.core.errors import InvalidArgumentError


class _ScaledConv(nn.Module):
    """A convolution with a scale for each kernel and a shift for each filter."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        self.scale = nn.Parameter(torch.ones_like(conv.weight[:, :, :1, :1]))
        self.shift = nn.Parameter(conv.weight.new_zeros(conv.out_channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv.weight * self.scale
        return functional_call(self.conv, {"weight": weight}, (x,)) + self.shift  # type: ignore[no-any-return]

    @torch.no_grad()
    def fold(self, following: nn.Module | None) -> nn.Conv2d:
        """Return a convolution to use instead, and move a shift that it cannot hold."""
        self.conv.weight *= self.scale
        if self.conv.bias is not None:
            self.conv.bias += self.shift.flatten()
        elif isinstance(following, nn.BatchNorm2d) and following.running_mean is not None:
            following.running_mean -= self.shift.flatten()
        return self.conv


def add_scale_shift(backbone: Backbone) -> None:
    """Freeze a backbone and give each of its convolutions learnt scales and shifts.

    It works in place and does not change the outputs. Only scales and shifts require a gradient.
    """
    backbone.requires_grad_(False)
    for parent in list(backbone.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d):
                setattr(parent, name, _ScaledConv(child))


def fold_scale_shift(backbone: Backbone) -> Backbone:
    """Return an ordinary backbone in evaluation mode, with the same outputs.

    Parameters
    ----------
    backbone
        A backbone with scales and shifts; it does not change. The layer that it defines after a
        convolution without bias must be the batch normalisation of the output.

    Raises
    ------
    InvalidArgumentError
        If it defines another layer there, so that the shifts cannot be folded.

    Examples
    --------
    >>> from infoshot.backbones import make_backbone
    >>> backbone = make_backbone("conv4")
    >>> add_scale_shift(backbone)
    >>> sum(parameter.requires_grad for parameter in backbone.parameters())
    8
    >>> list(fold_scale_shift(backbone).state_dict()) == list(make_backbone("conv4").state_dict())
    True
    """
    plain = deepcopy(backbone).eval().requires_grad_(True)
    layers = [m for m in plain.modules() if isinstance(m, (_ScaledConv, nn.BatchNorm2d))]
    following = dict(pairwise([*layers, None]))
    for parent in list(plain.modules()):
        for name, child in parent.named_children():
            if isinstance(child, _ScaledConv):
                setattr(parent, name, child.fold(following[child]))
    _check_outputs(plain, deepcopy(backbone).eval())
    return plain


@torch.no_grad()
def _check_outputs(plain: Backbone, scaled: Backbone) -> None:
    """Raise if two networks compute different features of an image."""
    size, weight = plain.input_spec.crop, next(plain.parameters())
    image = torch.linspace(-2, 2, 3 * size**2, dtype=weight.dtype, device=weight.device)
    image = image.view(1, 3, size, size)
    found, expected = plain(image), scaled(image)
    if (found - expected).abs().max() > 1e-3 * expected.abs().max():
        raise InvalidArgumentError(
            "backbone must define the batch normalisation right after the convolution, where that "
            f"has no bias, or shifts cannot be folded; got {type(plain).__name__}."
        )
