r"""SIB: class weights that descend along synthetic gradients of the queries.

A cosine classifier starts from weighted class means of the support. A small network then looks at
the scores of the queries and returns what stands for the gradient of the loss over them; the class
weights take a few steps along it, although the queries have no labels.

.. math:: s_{ik} = s \cos(w_k, z_i), \qquad
          w_k^0 = v \odot \frac{\sum_{i \in S} y_{ik} z_i / \|z_i\|}{\sum_{i \in S} y_{ik}}, \qquad
          w_k \leftarrow w_k - \eta \sum_{i \in Q} g_k(s_i) \frac{\partial s_{ik}}{\partial w_k},
          \qquad \frac{\partial s_{ik}}{\partial w_k} = \frac{s}{\|w_k\|}
          \left(\frac{z_i}{\|z_i\|} - \cos(w_k, z_i) \frac{w_k}{\|w_k\|}\right)

Queries are classified by the softmax of the scores after the last step. Learnt on top of a frozen
base network: the scale s (10 at the start), the weight of each channel v (1), and the network g. It
has two hidden layers of eight units per class, each with a rectifier and then batch normalisation.
Objective: the cross-entropy of the queries. Gradients pass through all steps.

Batch normalisation in g always uses the statistics of the queries at hand, also at test time, which
the original code does to estimate better gradients. The system is transductive. It learns from
balanced queries and assumes them: on imbalanced ones its accuracy falls below that of the class
means it starts from. The steps add up over the queries, so many more of them than in training make
them larger.

Cost per task and step: 4 \|Q\| K d operations, and 160 \|Q\| K K for the network.

What differs from the original:

- In training g normalises each task by its own queries; the original by all tasks of the batch,
  which differs from what it does at test time.
- A bias common to all classes is left out: it changes no probability, and the first layer of g has
  biases.

The network g has one input and one output per class. The number of ways at test time is therefore
that of the training, and a relabelling of the classes changes the result slightly.

Reference: S. X. Hu, P. G. Moreno, Y. Xiao, X. Shen, G. Obozinski, N. D. Lawrence, A. Damianou.
Empirical Bayes Transductive Meta-Learning with Synthetic Gradients. ICLR 2020.
"""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from infoshot.core import checks
from infoshot.solvers.method import Assumption
from infoshot.solvers.objective import class_means, inverse_lengths
from infoshot.training.episodic.fixed_ways import check_n_way
from infoshot.training.episodic.head import Head

_UNITS_PER_CLASS = 8


class _QueryNorm(nn.Module):
    """Batch normalisation over the queries of each task, ``(task, query, unit)``."""

    def __init__(self, n_units: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_units))
        self.bias = nn.Parameter(torch.zeros(n_units))

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x.mT, (x.shape[1],)).mT * self.weight + self.bias


@final
class Sib(Head):
    """Cosine classifier that descends along synthetic gradients.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`.
    n_way
        Number of classes of every task.
    n_steps
        Number of steps.
    learning_rate
        Step size (eta).
    """

    transductive: ClassVar[bool] = True
    assumes: ClassVar[tuple[Assumption, ...]] = ("balance",)

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_way: int = 5,
        n_steps: int = 3,
        learning_rate: float = 1e-3,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("n_way", n_way, 2)
        checks.at_least("n_steps", n_steps, 1)
        checks.positive("learning_rate", learning_rate)
        self.n_way, self.n_steps, self.learning_rate = n_way, n_steps, learning_rate
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.channel_weight = nn.Parameter(torch.ones(dim))
        n_units = _UNITS_PER_CLASS * n_way
        self.score_gradient = nn.Sequential(
            nn.Linear(n_way, n_units), nn.ReLU(), _QueryNorm(n_units),
            nn.Linear(n_units, n_units), nn.ReLU(), _QueryNorm(n_units),
            nn.Linear(n_units, n_way),
        )  # fmt: skip

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        w, z = self.prototypes(z_sup, y_sup, n_way), _unit(z_qry)
        for _ in range(self.n_steps):
            w = w - self.learning_rate * self._synthetic_gradient(z, w)
        return (self.scale * z @ _unit(w).mT).log_softmax(-1)

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Class weights before the first step, shape ``(task, class, dim)``."""
        check_n_way(n_way, self.n_way)
        return self.channel_weight * class_means(_unit(z_sup), y_sup, n_way)

    def _synthetic_gradient(self, z: Tensor, w: Tensor) -> Tensor:
        """Synthetic gradient over the class weights, for queries of unit length."""
        length = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        direction = w / length
        cosines = z @ direction.mT  # [task, query, class]
        g = self.score_gradient(self.scale * cosines)
        along = (g * cosines).sum(1).unsqueeze(-1)
        gradient: Tensor = self.scale / length * (g.mT @ z - along * direction)
        return gradient


def _unit(z: Tensor) -> Tensor:
    return z * inverse_lengths(z).unsqueeze(-1)
