"""Adam on class weights, one descent per task, for the methods with a closed-form gradient.

Reference: D. P. Kingma, J. Ba. Adam: a method for stochastic optimization. ICLR 2015.
"""

import math
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from infoshot.solvers.solver import State

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # the recommended values


@dataclass(eq=False, kw_only=True)
class AdamState(State):
    """Weights, and Adam's running means of the gradient and of its square."""

    weights: Tensor  # [task, class, dim]
    mean: Tensor = field(default_factory=partial(torch.empty, 0))
    square: Tensor = field(default_factory=partial(torch.empty, 0))
    n_descents: int = 0

    def __post_init__(self) -> None:
        """Start both means at zero."""
        if self.n_descents == 0:
            self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)

    def descend(self, gradient: Tensor, learning_rate: float) -> None:
        """Move the weights one step against the gradient."""
        self.n_descents += 1
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        rate, epsilon = corrected(self.n_descents, learning_rate)
        self.weights.addcdiv_(self.mean, self.square.sqrt().add_(epsilon), value=-rate)


def corrected(n_descents: int, learning_rate: float) -> tuple[float, float]:
    """Step size and epsilon of a step, with the bias corrections of both means included."""
    root = math.sqrt(1 - BETA2**n_descents)
    return learning_rate * root / (1 - BETA1**n_descents), EPSILON * root
