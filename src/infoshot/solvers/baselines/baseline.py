r"""Baseline: a linear classifier fitted to the support.

Minimises the cross-entropy of the labelled samples over weights without bias, from zero, with Adam:

.. math:: -\frac{1}{|S|} \sum_{i \in S} \sum_k y_{ik} \log p_{ik}, \qquad
          p_{ik} \propto \exp(\tau w_k^\top z_i)

The gradient is written out, so no autograd graph is built:
:math:`\partial L / \partial w_k = \frac{\tau}{|S|} \sum_{i \in S} (p_{ik} - y_{ik}) z_i`.

It never looks at the queries together, so it is right for a single query and for any class balance
among them; the class balance of the support becomes its prior. It stops after a fixed number of
steps, far from the minimum, which lies at infinity where classes can be separated. A step costs
4 \|S\| K d operations. Adam works per coordinate, so the result depends on the axes of the feature
space.

Reference: W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot
Classification. ICLR 2019; Adam as in ``adam.py``.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.adam import AdamState
from infoshot.solvers.objective import class_rows
from infoshot.solvers.solver import Solver


@dataclass(eq=False, kw_only=True)
class _BaselineState(AdamState):
    y: Tensor  # one-hot support labels, [task, class, support]


@final
@dataclass(frozen=True, kw_only=True)
class Baseline(Solver[_BaselineState]):
    """Linear softmax classifier fitted to the support.

    Parameters
    ----------
    n_steps
        Gradient steps per task.
    learning_rate
        Adam's step size.
    temperature
        Factor on the scores; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(Baseline(), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """

    n_steps: int = 100
    learning_rate: float = 1e-2
    temperature: float = 1.0

    def init(self, task: TaskBatch) -> _BaselineState:
        """Start from zero."""
        weights = task.z_sup.new_zeros(len(task), task.n_way, task.dim)
        return _BaselineState(
            posterior=weights.new_empty(len(task), 0, 0),
            weights=weights,
            y=class_rows(task.y_sup, task.n_way, weights.dtype),
        )

    def step(self, task: TaskBatch, state: _BaselineState) -> _BaselineState:
        """One step of Adam along the gradient."""
        scores = torch.bmm(state.weights, task.z_sup.mT).mul_(self.temperature)
        surplus = torch.softmax(scores, dim=1).sub_(state.y).mul_(self.temperature / task.n_sup)
        state.descend(torch.bmm(surplus, task.z_sup), self.learning_rate)
        return state

    def prototypes(self, task: TaskBatch, state: _BaselineState) -> Tensor:
        """Weights of the classifier, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities that the weights give to any samples, ``(task, sample, class)``."""
        scores = torch.bmm(prototypes, z.mT).mul_(self.temperature)
        return torch.log_softmax(scores, dim=1).mT

    def working_set(self, task: TaskBatch) -> int:
        """Count the support, the weights, their gradient and Adam's means."""
        return (task.n_sup + 5 * task.n_way) * task.dim
