r"""Batch normalisation with the statistics of the whole batch, over all processes.

On CUDA this is PyTorch's ``SyncBatchNorm``. PyTorch's version does not accept CPU tensors, so
processes on CPUs use the implementation below, which needs nothing but sums over processes. Either
way, several processes take the same optimisation steps as one, up to rounding. With :math:`n`
values per channel in total, :math:`\hat x = (x - \mu) / \sqrt{\sigma^2 + \epsilon}` and
:math:`g` the gradient with respect to :math:`y = w \hat x + b`,

.. math::
    \partial x = \frac{w}{\sqrt{\sigma^2 + \epsilon}}
        \Bigl(g - \frac1n \sum g - \hat x \frac1n \sum g \hat x \Bigr),

where the sums include all processes. :math:`\partial w = \sum g \hat x` and
:math:`\partial b = \sum g` are sums over the images of one process:
``DistributedDataParallel`` averages them together with all other gradients.
"""

from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from infoshot.core.errors import InvalidArgumentError


def synchronise_batch_norm(network: nn.Module, device: str) -> nn.Module:
    """Replace the batch normalisation in a network by one that includes all processes.

    Parameters
    ----------
    network
        The network; changed in place. Weights and running statistics stay the same tensors.
    device
        Where the network will run. On CUDA all kinds of batch normalisation are replaced.

    Returns
    -------
    The network, or what replaces it if it is a normalisation layer itself.

    Raises
    ------
    InvalidArgumentError
        If the network has a batch normalisation that cannot be synchronised on a CPU.
    """
    if torch.device(device).type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-any-return]
    if isinstance(network, _BatchNorm):
        if type(network) is nn.BatchNorm2d and network.affine and network.track_running_stats:
            return _SynchronisedBatchNorm(network)
        raise InvalidArgumentError(
            "several processes on a CPU support BatchNorm2d with weights and running statistics "
            f"only; the network has {network}. Use one process, or GPUs."
        )
    for name, module in network.named_children():
        setattr(network, name, synchronise_batch_norm(module, device))
    return network


@final
class _SynchronisedBatchNorm(nn.BatchNorm2d):
    """Normalise over all processes in training mode, as usual in evaluation mode."""

    def __init__(self, original: nn.BatchNorm2d) -> None:
        super().__init__(original.num_features, original.eps, original.momentum)
        self.weight, self.bias = original.weight, original.bias
        self.running_mean, self.running_var = original.running_mean, original.running_var
        self.num_batches_tracked = original.num_batches_tracked
        self.train(original.training)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, and update the running statistics."""
        if not self.training:
            return super().forward(x)
        with torch.autocast(x.device.type, enabled=False):
            mean, variance, n_values = _statistics(x.detach())
            self._update_running(mean, variance, n_values)
            return _Normalise.apply(  # type: ignore[no-any-return, no-untyped-call]
                x, self.weight, self.bias, mean, variance, self.eps, n_values
            )

    def _update_running(self, mean: Tensor, variance: Tensor, n_values: int) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (n_values / max(n_values - 1, 1))
        self.running_mean.lerp_(mean.to(self.running_mean), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var), momentum)


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return mean, variance and number of values per channel, over all processes."""
    wide = x.double() if x.dtype == torch.float64 else x.float()
    variance, mean = torch.var_mean(wide, (0, 2, 3), correction=0)
    # The parts are equally large: average the means; add their spread to the variances.
    size = dist.get_world_size()
    means = mean / size
    dist.all_reduce(means)
    variances = (variance + (mean - means) ** 2) / size
    dist.all_reduce(variances)
    return means, variances, size * x.numel() // x.shape[1]


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - PyTorch's context
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
