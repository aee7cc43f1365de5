r"""BD-CSPN: prototypes rectified by shifted and pseudo-labelled queries.

The queries are shifted so that their mean equals that of the support, and every query gets a pseudo
label by the nearest prototype. Each prototype then becomes a weighted mean of all samples with its
label.

.. math:: \eta = \frac{1}{|S|} \sum_{i \in S} z_i - \frac{1}{|Q|} \sum_{i \in Q} z_i, \qquad
          x_i = z_i \text{ on } S, \quad z_i + \eta \text{ on } Q

.. math:: c_{ik} = \cos(x_i, w_k), \quad r_{ik} = \mathrm{softmax}_k(\tau c_{ik}), \qquad
          w'_k = \frac{\sum_{i: \hat y_i = k} r_{ik} x_i}{\sum_{i: \hat y_i = k} r_{ik}}

with :math:`\hat y_i` the label on the support and :math:`\arg\max_k c_{ik}` on the queries. The
posterior is :math:`p_{ik} = \mathrm{softmax}_k(\tau \cos(x_i, w'_k))`. A class without
pseudo-labelled queries is the weighted mean of its support. Weights are normalised in log space, so
any temperature works.

Cost: three products, 6 N K d operations for N = \|S\| + \|Q\| samples. When to prefer it: for
balanced queries, where it is fast. The shift assumes the same class balance in queries and support;
a single query is shifted onto the mean of the support and carries no information.

Reference: J. Liu, L. Song, Y. Qin. Prototype Rectification for Few-Shot Learning. ECCV 2020.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_cosines, class_means, class_rows
from infoshot.solvers.solver import Solver, State


@dataclass(eq=False)
class _RectifiedState(State):
    weights: Tensor  # [task, class, dim]
    x_qry: Tensor  # shifted queries, [task, query, dim]


@final
@dataclass(frozen=True, kw_only=True)
class BdCspn(Solver[_RectifiedState]):
    """Nearest rectified prototype, by cosine.

    Parameters
    ----------
    temperature
        Factor on the cosines, in the weights of the samples and in the posterior; larger is
        sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(BdCspn(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    temperature: float = 10.0

    def init(self, task: TaskBatch) -> _RectifiedState:
        """Rectify the class means."""
        weights, x_qry = rectify(task, self.temperature)
        return _RectifiedState(weights=weights, x_qry=x_qry)

    def log_posterior(self, task: TaskBatch, state: _RectifiedState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return self.classify(state.x_qry, state.weights)

    def prototypes(self, task: TaskBatch, state: _RectifiedState) -> Tensor:
        """Rectified prototypes, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples, not shifted, ``(task, sample, class)``."""
        return torch.log_softmax(class_cosines(z, prototypes).mul_(self.temperature), dim=1).mT


def rectify(task: TaskBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Rectified prototypes, ``(task, class, dim)``, and shifted queries, ``(task, query, dim)``."""
    shift = task.z_sup.mean(1, keepdim=True) - task.z_qry.mean(1, keepdim=True)
    x = torch.cat((task.z_sup, task.z_qry + shift), dim=1)
    cosines = class_cosines(x, class_means(task.z_sup, task.y_sup, task.n_way))
    guess = torch.cat((task.y_sup, cosines[:, :, task.n_sup :].max(1).indices), dim=1)
    log_r = torch.log_softmax(cosines.mul_(temperature), dim=1)
    log_r.masked_fill_(~class_rows(guess, task.n_way, torch.bool), -math.inf)
    return torch.bmm(torch.softmax(log_r, dim=-1), x), x[:, task.n_sup :]
