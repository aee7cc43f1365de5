"""Optimizers by name, and their state as tensors by name."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from infoshot.training.run_config import RunConfig

OPTIMIZERS = ("sgd", "adam")
# How PyTorch calls the state of a parameter, and how stored tensors call it.
_STATES = {
    "momentum_buffer": "momentum",
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "step": "step",
}


def make_optimizer(
    kind: Literal["sgd", "adam"],
    groups: Sequence[Mapping[str, Any]],
    config: RunConfig,
    device: str,
) -> torch.optim.Optimizer:
    """Build an optimizer for groups of parameters.

    Parameters
    ----------
    kind
        ``"sgd"`` or ``"adam"``; Adam has no momentum of its own and ignores that of the settings.
    groups
        Parameters as PyTorch takes them; ``factor`` of a group multiplies the learning rate.
    config
        Learning rate, momentum and weight decay.
    device
        Where the parameters are.
    """
    fused = device.startswith("cuda") or None
    common: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if kind == "adam":
        return torch.optim.Adam(groups, **common, fused=fused)  # type: ignore[arg-type]
    return torch.optim.SGD(
        groups,  # type: ignore[arg-type]
        **common,
        momentum=config.momentum,
        nesterov=config.nesterov,
        fused=fused,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1)


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the state of an optimizer, such as ``momentum.NAME`` for every parameter."""
    return {
        f"{stored}.{name}": state[own]
        for name, parameter in model.named_parameters()
        if (state := optimizer.state.get(parameter))
        for own, stored in _STATES.items()
        if state.get(own) is not None
    }


def load_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Restore the state that :func:`optimizer_tensors` returned."""
    fused = any(group.get("fused") for group in optimizer.param_groups)
    for name, parameter in model.named_parameters():
        for own, stored in _STATES.items():
            value = tensors.get(f"{stored}.{name}")
            if value is None:
                continue
            if own == "step":  # a counter, which only fused optimizers keep on the device
                value = value.to(parameter.device if fused else "cpu")
            else:
                value = torch.empty_like(parameter, requires_grad=False).copy_(value)
            optimizer.state[parameter][own] = value
