r"""Stochastic gradient descent on mini-batches of the support, one descent per task.

Shared by the heads of Baseline and Baseline++ as published. An epoch passes over the support in
random order, and each mini-batch with the gradient g of its mean loss takes a step

.. math:: g \leftarrow g + \omega w, \qquad v \leftarrow \mu v + (1 - \delta) g, \qquad
          w \leftarrow w - \eta v

where v is g in the first step (PyTorch's momentum :math:`\mu` with dampening :math:`\delta`).

Random numbers are hashes, see ``core/rng.py``. The samples are ordered by their projection on a
random direction, and the classes by their first sample in this order. Initial weights and random
orders refer to these positions. So the result depends neither on the order in which the support is
given, nor on the numbers of the classes, nor on the other tasks; the original draws everything anew
for each task.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Self

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.rng import random_bits
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_rows
from infoshot.solvers.solver import Rule, Solver, State

_DIRECTION, _WEIGHTS, _ORDER = 1, 2, 3  # streams of random numbers


@dataclass(eq=False, kw_only=True)
class SgdState(State):
    """Weights with their velocity, and the support ordered by content."""

    z: Tensor  # [task, support, dim]
    y: Tensor  # one-hot labels, [task, class, support]
    weights: Tensor  # [task, class, parameter]
    velocity: Tensor = field(default_factory=partial(torch.empty, 0))
    n_epochs: int = 0

    @classmethod
    def at_random(cls, task: TaskBatch, seed: int, n_parameters: int) -> Self:
        """Start from random weights, as a linear layer of PyTorch does.

        Weights are uniform between plus and minus one over the square root of the dimension.
        """
        direction = _uniform(seed, _DIRECTION, (task.dim,), task.z_sup)
        order = (task.z_sup * direction).sum(-1).argsort(dim=1)
        z = task.z_sup.take_along_dim(order.unsqueeze(-1), dim=1)
        y = class_rows(task.y_sup.gather(1, order), task.n_way, z.dtype)
        rank = y.argmax(-1).argsort(dim=1).argsort(dim=1)  # classes by their first sample
        start = _uniform(seed, _WEIGHTS, (task.n_way, n_parameters), z)
        return cls(z=z, y=y, weights=start[rank] / math.sqrt(task.dim))

    def descend(
        self, gradient: Tensor, *, rate: float, momentum: float, dampening: float, decay: float
    ) -> None:
        """Take one step against the gradient."""
        gradient = gradient.add_(self.weights, alpha=decay)
        if self.velocity.numel():
            self.velocity.mul_(momentum).add_(gradient, alpha=1 - dampening)
        else:
            self.velocity = gradient
        self.weights = self.weights.sub_(self.velocity, alpha=rate)


@dataclass(frozen=True, kw_only=True)
class SgdSolver(Solver[SgdState]):
    """Base of the solvers that fit a classifier to the support in mini-batches.

    Parameters
    ----------
    n_steps
        Passes over the support.
    batch_size
        Samples per mini-batch; the last one of a pass may have fewer.
    learning_rate, momentum, dampening, weight_decay
        Of the descent.
    seed
        Seed of the initial weights and the order of the samples.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "batch_size": partial(checks.at_least, least=1),
        "momentum": checks.share_below_one,
        "dampening": checks.share_below_one,
        "weight_decay": checks.not_negative,
        "seed": checks.seed,
    }

    n_steps: int = 100
    batch_size: int = 4
    learning_rate: float = 0.01
    momentum: float = 0.9
    dampening: float = 0.9
    weight_decay: float = 1e-3
    seed: int = 0

    @abstractmethod
    def gradient(self, weights: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Gradient of the mean cross-entropy of a mini-batch, of the shape of ``weights``."""

    def step(self, task: TaskBatch, state: SgdState) -> SgdState:
        """Pass over the support once."""
        place = torch.tensor([state.n_epochs], device=state.z.device)
        order = random_bits(self.seed, _ORDER, place, (task.n_sup,))[0].argsort()
        z, y = state.z[:, order], state.y[:, :, order]
        for first in range(0, task.n_sup, self.batch_size):
            part = slice(first, first + self.batch_size)
            state.descend(
                self.gradient(state.weights, z[:, part], y[:, :, part]),
                rate=self.learning_rate,
                momentum=self.momentum,
                dampening=self.dampening,
                decay=self.weight_decay,
            )
        state.n_epochs += 1
        return state

    def working_set(self, task: TaskBatch) -> int:
        """Count the support twice, the weights, their gradient and velocity."""
        return (2 * task.n_sup + 4 * task.n_way) * task.dim


def _uniform(seed: int, stream: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Random numbers between -1 and 1, the same for all tasks."""
    bits = random_bits(seed, stream, torch.zeros(1, dtype=torch.int64, device=like.device), shape)
    return bits[0].to(torch.float64).div_(2**31).sub_(1).to(like.dtype)
