r"""Baseline++: a cosine classifier with a learned scale, fitted to the support.

It minimises the cross-entropy of the labelled samples over class directions and one scale, with
Adam. The queries are classified independently.

.. math:: -\frac{1}{|S|} \sum_{i \in S} \sum_k y_{ik} \log p_{ik}, \qquad
          p_{ik} \propto \exp(s \, c_{ki}), \quad c_{ki} = \cos(v_k, z_i)

The directions start at the support means, scaled to unit length, and the scale at :math:`\tau`.
Update: Adam on the closed-form gradient. With :math:`\hat v, \hat z` of unit length and
:math:`g_{ki} = (p_{ik} - y_{ik}) / |S|`,

- scale: :math:`\partial L / \partial s = \sum_{ki} g_{ki} c_{ki}`
- directions: :math:`\partial L / \partial v_k
  = \frac{s}{\|v_k\|} \left(\sum_i g_{ki} \hat z_i - (\sum_i g_{ki} c_{ki}) \hat v_k\right)`

Cost: 4 \|S\| K d operations per step. When to prefer it: for a single query or any class balance
among the queries. It ignores the lengths of the features. A mean of length zero has no direction:
its cosines are 0 and it does not change. Adam scales every coordinate, so the result depends on the
axes of the feature space.

Reference: W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot
Classification. ICLR 2019; Adam as in ``adam.py``.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.adam import AdamState
from infoshot.solvers.objective import class_means, class_rows, inverse_lengths
from infoshot.solvers.solver import Solver


@dataclass(eq=False, kw_only=True)
class _CosineState(AdamState):
    """``weights`` holds all directions and then the scale, ``(task, class * dim + 1)``."""

    z: Tensor  # support scaled to unit length, [task, support, dim]
    y: Tensor  # one-hot support labels, [task, class, support]


@final
@dataclass(frozen=True, kw_only=True)
class BaselinePlusPlus(Solver[_CosineState]):
    """Cosine classifier fitted to the support.

    Parameters
    ----------
    n_steps
        Gradient steps per task.
    learning_rate
        Adam's step size, for the directions and the scale.
    temperature
        Initial scale on the cosines; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(BaselinePlusPlus(), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """

    n_steps: int = 100
    learning_rate: float = 1e-2
    temperature: float = 10.0

    def init(self, task: TaskBatch) -> _CosineState:
        """Start from class means of unit length."""
        means = class_means(task.z_sup, task.y_sup, task.n_way)
        directions = means * inverse_lengths(means).unsqueeze(-1)
        scale = means.new_full((len(task), 1), self.temperature)
        return _CosineState(
            weights=torch.cat((directions.flatten(1), scale), dim=1),
            z=task.z_sup * inverse_lengths(task.z_sup).unsqueeze(-1),
            y=class_rows(task.y_sup, task.n_way, means.dtype),
        )

    def step(self, task: TaskBatch, state: _CosineState) -> _CosineState:
        """Take one step of Adam."""
        v, scale = _parts(task, state)
        inverse = inverse_lengths(v).unsqueeze(-1)
        unit = v * inverse
        cosines = torch.bmm(unit, state.z.mT)
        g = torch.softmax(cosines * scale, dim=1).sub_(state.y).div_(task.n_sup)
        along = torch.linalg.vecdot(g, cosines).unsqueeze(-1)
        of_v = torch.bmm(g, state.z).addcmul_(unit, along, value=-1).mul_(inverse * scale)
        state.descend(torch.cat((of_v.flatten(1), along.sum(1)), dim=1), self.learning_rate)
        return state

    def prototypes(self, task: TaskBatch, state: _CosineState) -> Tensor:
        """Directions times the scale, shape ``(task, class, dim)``."""
        v, scale = _parts(task, state)
        return v * inverse_lengths(v).unsqueeze(-1).mul_(scale)

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples given the weights, ``(task, sample, class)``."""
        scores = torch.bmm(prototypes, z.mT).mul_(inverse_lengths(z).unsqueeze(1))
        return torch.log_softmax(scores, dim=1).mT

    def working_set(self, task: TaskBatch) -> int:
        """Count the support, the weights, their gradient and Adam's means."""
        return (task.n_sup + 6 * task.n_way) * task.dim


def _parts(task: TaskBatch, state: _CosineState) -> tuple[Tensor, Tensor]:
    """Directions, ``(task, class, dim)``, and scale, ``(task, 1, 1)``; views of the weights."""
    directions = state.weights[:, :-1].unflatten(1, (task.n_way, task.dim))
    return directions, state.weights[:, -1:].unsqueeze(-1)
