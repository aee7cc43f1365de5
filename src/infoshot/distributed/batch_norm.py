r"""Batch normalisation with the statistics of the whole batch, wherever its images are.

PyTorch's ``SyncBatchNorm`` needs GPUs. This one needs sums over processes only, so that training
on several processes takes the steps that one process takes, up to rounding. With :math:`n` values
per channel in all, :math:`\hat x = (x - \mu) / \sqrt{\sigma^2 + \epsilon}` and
:math:`g` the gradient after :math:`y = w \hat x + b`,

.. math::
    \partial x = \frac{w}{\sqrt{\sigma^2 + \epsilon}}
        \Bigl(g - \frac1n \sum g - \hat x \frac1n \sum g \hat x \Bigr),

where the sums go over all processes. :math:`\partial w = \sum g \hat x` and
:math:`\partial b = \sum g` stay sums over the own images: averaging gradients over processes is
the business of whoever does it for all parameters.
"""

from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm


def synchronised_batch_norm(network: nn.Module) -> nn.Module:
    """Replace every ``BatchNorm2d`` in a network; weights and statistics stay the same tensors."""
    for name, module in network.named_children():
        if type(module) is nn.BatchNorm2d:
            setattr(network, name, _SynchronisedBatchNorm(module))
        else:
            synchronised_batch_norm(module)
    return network


@final
class _SynchronisedBatchNorm(nn.BatchNorm2d):
    """Normalises over all processes while training, as usual otherwise."""

    def __init__(self, original: nn.BatchNorm2d) -> None:
        super().__init__(original.num_features, original.eps, original.momentum)
        self.weight, self.bias = original.weight, original.bias
        self.running_mean, self.running_var = original.running_mean, original.running_var
        self.num_batches_tracked = original.num_batches_tracked
        self.train(original.training)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, and follow the statistics."""
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            mean, variance, n_values = _statistics(x.detach())
            self._follow(mean, variance, n_values)
            return _Normalise.apply(  # type: ignore[no-any-return, no-untyped-call]
                x, self.weight, self.bias, mean, variance, self.eps, n_values
            )

    def _follow(self, mean: Tensor, variance: Tensor, n_values: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (n_values / max(n_values - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var), momentum)


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, int]:
    """Mean and variance per channel and how many values they are of, over all processes."""
    wide = x.double() if x.dtype == torch.float64 else x.float()
    variance, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
    # Equal parts: the mean of the means, and what the means vary by on top of the variances.
    size = dist.get_world_size()
    means = mean / size
    dist.all_reduce(means)
    variances = (variance + (mean - means) ** 2) / size
    dist.all_reduce(variances)
    return means, variances, size * x.numel() // x.shape[1]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - PyTorch's
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        eps: float,
        n_values: int,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.n_values = eps, n_values
        return batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, mean, variance = ctx.saved_tensors
        [g] = gradients
        shape = (1, -1, 1, 1)
        scale = (variance + ctx.eps).rsqrt()
        wide = g.to(mean.dtype)
        x_hat = (x.to(mean.dtype) - mean.view(shape)) * scale.view(shape)
        own = torch.stack((wide.sum((0, 2, 3)), (wide * x_hat).sum((0, 2, 3))))
        total = own.clone()
        dist.all_reduce(total)
        mean_g, mean_gx = (total / ctx.n_values).unbind(0)
        dx = wide - mean_g.view(shape) - x_hat * mean_gx.view(shape)
        dx = dx * (weight.to(scale) * scale).view(shape)
        d_bias, d_weight = own.to(weight.dtype).unbind(0)
        return dx.to(x.dtype), d_weight, d_bias, None, None, None, None
