r"""GNN: a graph network over the support and one query propagates labels along learned edges.

Every query has its own graph. Its nodes are the samples of the support, with their labels, and the
query, without one. Each layer computes the weights of all edges from the differences of the nodes,
and updates the nodes from their neighbours; the last layer gives the scores of the classes.

Nodes start as :math:`x_i = [\phi(z_i), y_i]`, a linear layer of 128 units with batch normalisation
and the one-hot label, which is zero for the query. A layer is

.. math:: A_{ij} = \mathrm{softmax}_{j \ne i}\, e(|x_i - x_j|), \qquad
          x_i \leftarrow \Bigl[x_i,\ g\Bigl(U x_i + V \textstyle\sum_j A_{ij} x_j + u\Bigr)\Bigr].

:math:`e` is a network of four layers of 192, 192, 96 and 96 units, each with batch normalisation
and leaky ReLU, and a linear output; :math:`g` is batch normalisation and leaky ReLU, for 48 new
features in each of the first two layers. The third and last layer has the classes as outputs,
without :math:`g` and without :math:`x_i`, and :math:`p` is the softmax of the query's.

Objective: the cross-entropy of the queries. Learned: :math:`\phi`, all layers, and the backbone.

Cost: :math:`3 (|S| + 1)^2` evaluations of :math:`e` for each query, about 0.1 million
multiplications each. At test time queries are classified in chunks.

Labels are coordinates of the nodes: the number of classes is fixed when the head is made, and
predictions depend on the numbering of the classes. The number of shots is not fixed and may differ
between classes; the published systems are trained and tested with the same number.

References: V. Garcia, J. Bruna. Few-Shot Learning with Graph Neural Networks. ICLR 2018. With a
residual network, from mini-ImageNet to CUB: H.-Y. Tseng, H.-Y. Lee, J.-B. Huang, M.-H. Yang.
Cross-Domain Few-Shot Classification via Learned Feature-Wise Transformation. ICLR 2020.

What differs from the original: the label of the query is zero as in both published codes, and not
the uniform distribution of Garcia and Bruna's paper. Tseng et al. put one query of every class into
each graph, and normalise with the statistics of the test batch; here, as in Garcia and Bruna, a
graph has one query, and running statistics classify it independently of the others.
"""

from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, one_hot, pad

from infoshot.core import checks
from infoshot.training.episodic.fixed_ways import check_n_way
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.query_chunks import map_queries

_N_LAYERS = 3


@final
class Gnn(Head):
    """Three layers of a graph network over the support and a query.

    Parameters
    ----------
    dim, n_base_classes
        As for every head.
    n_way
        Number of classes of every task.
    n_embedding
        Features of a node without its label.
    n_edge
        Units of the last two hidden layers of the edge network, half of those of the first two; a
        layer adds half as many features to the nodes.
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        n_way: int = 5,
        n_embedding: int = 128,
        n_edge: int = 96,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("n_way", n_way, 2)
        checks.at_least("n_embedding", n_embedding, 1)
        checks.at_least("n_edge", n_edge, 2)
        self.n_way, n_new = n_way, n_edge // 2
        self.embedding = nn.Sequential(nn.Linear(dim, n_embedding), nn.BatchNorm1d(n_embedding))
        widths = [n_embedding + n_way + n_new * layer for layer in range(_N_LAYERS)]
        self.edges = nn.ModuleList(_edge_network(width, n_edge) for width in widths)
        self.updates = nn.ModuleList(_update(width, n_new) for width in widths[:-1])
        self.output = nn.Linear(2 * widths[-1], n_way)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``.

        Raises
        ------
        InvalidArgumentError
            If the number of classes is not that of the head.
        """
        check_n_way(n_way, self.n_way)
        z, n_sup = torch.cat((z_sup, z_qry), dim=1), z_sup.shape[1]
        x = self.embedding(z.flatten(0, 1)).unflatten(0, z.shape[:2])
        x_sup = torch.cat((x[:, :n_sup], one_hot(y_sup, n_way).to(x.dtype)), dim=-1)

        def score(x_qry: Tensor) -> Tensor:
            graphs = x_sup.unsqueeze(1).expand(-1, x_qry.shape[1], -1, -1)
            nodes = torch.cat((graphs, x_qry.unsqueeze(2)), dim=2)
            return self._propagate(nodes.flatten(0, 1)).view(*x_qry.shape[:2], n_way)

        n_values = 2 * (n_sup + 1) ** 2 * self.output.in_features
        x_qry = pad(x[:, n_sup:], (0, n_way))
        return torch.log_softmax(map_queries(score, x_qry, n_values, whole=self.training), dim=-1)

    def _propagate(self, x: Tensor) -> Tensor:
        """Scores of the last node of graphs ``(graph, node, feature)``, ``(graph, class)``."""
        for edge, update in zip(self.edges[:-1], self.updates, strict=True):
            new = update(_with_neighbours(edge, x).flatten(0, 1)).unflatten(0, x.shape[:2])
            x = torch.cat((x, leaky_relu(new)), dim=-1)
        return self.output(_with_neighbours(self.edges[-1], x)[:, -1])  # type: ignore[no-any-return]


def _edge_network(width: int, n_edge: int) -> nn.Sequential:
    """Score edges from the absolute differences of their nodes."""
    sizes = (width, 2 * n_edge, 2 * n_edge, n_edge, n_edge)
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(n_edge, 1))


def _update(width: int, n_new: int) -> nn.Sequential:
    """Compute new features of a node from itself and the mean of its neighbours."""
    return nn.Sequential(nn.Linear(2 * width, n_new), nn.BatchNorm1d(n_new))


def _with_neighbours(edge: nn.Module, x: Tensor) -> Tensor:
    """Append the weighted mean of the other nodes to each node of ``(graph, node, feature)``."""
    differences = (x.unsqueeze(2) - x.unsqueeze(1)).abs()
    scores = edge(differences.flatten(0, 2)).view(differences.shape[:3])
    itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    weights = torch.softmax(scores.masked_fill(itself, -torch.inf), dim=-1)
    return torch.cat((x, weights @ x), dim=-1)
