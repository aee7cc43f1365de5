"""Adam on class weights, one descent per task, for the methods that write out their gradient.

Reference: D. P. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015.
"""

import math
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from infoshot.solvers.base import State

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # the recommended values


@dataclass(eq=False, kw_only=True)
class AdamState(State):
    """Weights under descent, and Adam's running means of the gradient and of its square."""

    weights: Tensor  # [task, class, dim]
    mean: Tensor = field(default_factory=partial(torch.empty, 0))
    square: Tensor = field(default_factory=partial(torch.empty, 0))
    n_descents: int = 0

    def __post_init__(self) -> None:
        """Start at rest."""
        if self.n_descents == 0:
            self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)

    def descend(self, gradient: Tensor, learning_rate: float) -> None:
        """Move the weights one step against the gradient."""
        self.n_descents += 1
        self.mean.lerp_(gradient, 1 - _BETA1)
        self.square.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
        # The bias corrections of both means, moved into the step size and epsilon.
        root = math.sqrt(1 - _BETA2**self.n_descents)
        rate = learning_rate * root / (1 - _BETA1**self.n_descents)
        scale = self.square.sqrt().add_(_EPSILON * root)
        self.weights.addcdiv_(self.mean, scale, value=-rate)
