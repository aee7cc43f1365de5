r"""TPN: label propagation over a graph whose kernel widths are learnt.

Labels spread from the support over the graph of nearest neighbours of support and queries. A small
network gives each sample the width of its kernel, and the gradient passes through the linear system
into it and into the backbone.

.. math:: A_{ij} = \exp\left(-\frac{1}{2d} \left\|\frac{z_i}{\sigma_i} - \frac{z_j}{\sigma_j}
          \right\|^2\right), \qquad F = (I - a B)^{-1} Y, \qquad
          \log p_{ik} = F_{ik} - \log \sum_l \exp F_{il}

with B from A as in ``solvers/propagation.py``; a sample is one of its own k neighbours. Y holds the
labels of the support and zeros for queries. Vectors are not normalised. Learnt: the network g of
:math:`\sigma_i = \exp(g(z_i))`, and the backbone.

Objective: the cross-entropy of all samples, support and queries. Transductive: all queries are
classified together; a query without a path to a labelled sample gets equal probabilities.

Cost per task with N samples: 2 N N d operations for the graph, N N N / 3 for the linear system.

What differs from the original:

- It works on feature vectors, for any backbone; the original flattens the maps of Conv-4.
- Hence g has three linear layers (d to 64 to 8 to 1, with rectifiers between) where the original
  has two convolutions with batch normalisation and two linear layers.
- The original uses the output of g as the width, which may be negative or near zero; the
  exponential is positive. Untrained widths are near 0.25: with wide kernels labels spread over
  everything, one class takes most queries, and the gradient is almost zero.

Reference: Y. Liu, J. Lee, M. Park, S. Kim, E. Yang, S. J. Hwang, Y. Yang. Learning to Propagate
Labels: Transductive Propagation Network for Few-shot Learning. ICLR 2019.
"""

import math
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from infoshot.core import checks
from infoshot.solvers.propagation import neighbour_graph, spread_labels
from infoshot.training.episodic.head import Episodes, Head, query_cross_entropy

_FIRST_WIDTH = 0.25


@final
class Tpn(Head):
    """Label propagation with learnt kernel widths.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`.
    n_neighbours
        Number of edges that each sample keeps, one of them to itself.
    propagation
        Weight of the neighbours in the label of a sample (a), below 1.
    """

    transductive: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_neighbours: int = 20,
        propagation: float = 0.99,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("n_neighbours", n_neighbours, 2)
        checks.below_one("propagation", propagation)
        self.n_neighbours, self.propagation = n_neighbours, propagation
        last = nn.Linear(8, 1)
        nn.init.constant_(last.bias, math.log(_FIRST_WIDTH))
        self.log_width = nn.Sequential(
            nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 8), nn.ReLU(), last
        )

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        return self._log_p(z_sup, y_sup, z_qry, n_way)[:, z_sup.shape[1] :]

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Cross-entropy of support and queries, and the log-probabilities of the queries."""
        log_p = self._log_p(episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.n_way)
        y = torch.cat((episodes.y_sup, episodes.y_qry), dim=1)
        return query_cross_entropy(log_p, y), log_p[:, episodes.y_sup.shape[1] :]

    def _log_p(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Log-probabilities of support and queries, shape ``(task, sample, class)``."""
        z = torch.cat((z_sup, z_qry), dim=1)
        scaled = z * self.log_width(z).neg().exp()
        graph = neighbour_graph(scaled, 1 / self.dim, self.n_neighbours, loops=True)
        return spread_labels(graph, y_sup, n_way, self.propagation).log_softmax(-1)
