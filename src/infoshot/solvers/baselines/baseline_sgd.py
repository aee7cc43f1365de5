r"""Baseline as published: a linear layer fitted to the support by stochastic gradient descent.

It minimises the cross-entropy of the labelled samples over weights and biases, with weight decay on
both, from random weights. The queries are classified independently.

.. math:: -\frac1n \sum_i \sum_k y_{ik} \log p_{ik}, \qquad
          p_{ik} \propto \exp(\tau (w_k^\top z_i + b_k))

over the n samples of a mini-batch. Update: 100 passes of mini-batches of 4, see ``sgd.py``, with
the gradient :math:`\partial L / \partial w_k = \frac{\tau}{n} \sum_i (p_{ik} - y_{ik}) z_i`; the
bias is the weight of a constant feature of 1. Cost: 4 \|S\| K d operations per pass. When to prefer
it: to compare with published numbers of Baseline; ``baseline`` is faster and without random
numbers.

The learning rate is for features as the network computes them, whose length is about ten. On
features of unit length the same steps stay near the initial weights (31 % with one shot instead of
54 % on our features).

What differs from the original: random numbers do not change from task to task. The network is
trained elsewhere (the recipe ``paper`` with ``label_smoothing=0``).

Reference: W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot
Classification. ICLR 2019.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import pad

from infoshot.core.types import TaskBatch
from infoshot.solvers.sgd import SgdSolver, SgdState


@final
@dataclass(frozen=True, kw_only=True)
class BaselineSgd(SgdSolver):
    """Linear layer fitted to the support by stochastic gradient descent.

    It adds this parameter to those of ``SgdSolver``.

    Parameters
    ----------
    temperature
        Factor on the scores; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[9.0, 0.0], [0.0, 9.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[8.0, 1.0]]]), n_way=2)
    >>> solve(BaselineSgd(), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """

    temperature: float = 1.0

    def init(self, task: TaskBatch) -> SgdState:
        """Start from random weights and biases."""
        state = SgdState.at_random(task, self.seed, task.dim + 1)
        state.z = _with_constant(state.z)
        return state

    def gradient(self, weights: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """Gradient of the mean cross-entropy of a mini-batch."""
        scores = torch.bmm(weights, z.mT).mul_(self.temperature)
        surplus = torch.softmax(scores, dim=1).sub_(y).mul_(self.temperature / z.shape[1])
        return torch.bmm(surplus, z)

    def log_posterior(self, task: TaskBatch, state: SgdState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return self.classify(_with_constant(task.z_qry), state.weights)

    def prototypes(self, task: TaskBatch, state: SgdState) -> Tensor:
        """Weights without the biases, shape ``(task, class, dim)``."""
        return state.weights[..., :-1]

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities given weights, ``(task, sample, class)``; it ignores the biases."""
        scores = torch.bmm(prototypes, z.mT).mul_(self.temperature)
        return torch.log_softmax(scores, dim=1).mT


def _with_constant(z: Tensor) -> Tensor:
    """Append a feature of 1."""
    return pad(z, (0, 1), value=1.0)
