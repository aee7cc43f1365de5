r"""CAN: every pair of a class and a query looks at the positions where their maps agree.

A cross-attention module weights the positions of the class map and of the query map by how well
they match the other map, so that the pooled vectors describe the object that both show. The
training classifies every position of a query, among the ways of the episode and among all base
classes.

Attention, with the mean support map :math:`P` of a class and the map :math:`Z` of a query, columns
:math:`P_i` and :math:`Z_j`, :math:`m` positions each:

.. math:: R_{ij} = \cos(P_i, Z_j), \qquad
          w = W_2 \max(0, W_1 \tfrac1m \textstyle\sum_i R_{i\cdot}), \qquad
          a_i = 1 + \mathrm{softmax}_i\left(\tfrac{1}{m \tau} R_{i\cdot} w\right)

with batch normalisation after :math:`W_1`; :math:`w` is the *kernel* that fuses the correlations of
a position, and the 1 is the residual. Attention :math:`b_j` over the positions of the query is the
same with the transpose of :math:`R`. A query gets the class with the largest cosine of pooled
vectors,

.. math:: p_k \propto \exp(s \cos(\bar P_k, \bar Z_k)), \qquad
          \bar P = \tfrac1m \textstyle\sum_i a_i P_i, \qquad
          \bar Z = \tfrac1m \textstyle\sum_j b_j Z_j.

Objective, with :math:`y` the way of a query and :math:`g` its base class:

.. math:: -\frac{1}{|Q| m} \sum_{Q, j} \Bigl[
          \lambda \log \mathrm{softmax}_y(s \cos(\bar P_k, Z_j))
          + \log \mathrm{softmax}_g(V b_j Z_j + v) \Bigr]

where :math:`b` is the attention of the query for its own class. Learned: :math:`W_1`, :math:`W_2`,
:math:`V`, :math:`v`, and the backbone.

Cost: :math:`m^2 + d` numbers of memory for each pair of class and query, with :math:`d` channels;
attended maps, :math:`m d` numbers, are not stored, since cosines at a position do not depend on its
attention, and pooling is a product of matrices.

Reference: R. Hou, H. Chang, B. Ma, S. Shan, X. Chen. Cross Attention Network for Few-shot
Classification. NeurIPS 2019. CAN+T is this head inside ``ConfidentQueries``.

What differs from the original: maps are averaged to ``side`` x ``side`` positions, since the kernel
has one weight per position. The original's ResNet-12 gives 6 x 6 positions; ours gives 5 x 5, which
is the default. :math:`1/m` in front of :math:`R w` is in the authors' code, not in the paper.
:math:`\lambda = 0.5` weights the loss over the ways, and not that over the base classes, as in the
authors' code.
"""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, nll_loss

from infoshot.core import checks
from infoshot.solvers.objective import class_means, inverse_lengths
from infoshot.training.episodic.head import Episodes, Head, Input
from infoshot.training.episodic.query_chunks import map_queries


@final
class Can(Head):
    """Cosines of pooled maps with cross attention.

    Parameters
    ----------
    dim, n_base_classes
        As for every head.
    side
        Side of the maps that are compared; other maps are averaged to ``side`` x ``side``.
    reduction
        The fusion layer has ``side**2 / reduction`` hidden units.
    attention_temperature
        Divides the scores of the attention; smaller is sharper.
    scale
        Factor on cosines in a softmax; larger is sharper.
    episode_weight
        Weight of the loss over the ways of an episode; that over all base classes has weight 1.
    """

    reads: ClassVar[Input] = "maps"

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        side: int = 5,
        reduction: float = 6.0,
        attention_temperature: float = 0.025,
        scale: float = 7.0,
        episode_weight: float = 0.5,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("side", side, 1)
        for name, value in (
            ("reduction", reduction),
            ("attention_temperature", attention_temperature),
            ("scale", scale),
        ):
            checks.positive(name, value)
        checks.not_negative("episode_weight", episode_weight)
        self.side, self.scale, self.episode_weight = side, scale, episode_weight
        self.attention_temperature = attention_temperature
        n_hidden = max(1, round(side**2 / reduction))
        first, last = nn.Linear(side**2, n_hidden), nn.Linear(n_hidden, side**2)
        for layer in (first, last):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        self.fusion = nn.Sequential(first, nn.BatchNorm1d(n_hidden), nn.ReLU(), last)
        self.base_classifier = nn.Linear(dim, n_base_classes)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``.

        Samples are maps, shape ``(task, n, channel, height, width)``.
        """
        classes = self._class_maps(z_sup, y_sup, n_way)

        def score(queries: Tensor) -> Tensor:
            z = self._positions(queries)
            of_class, of_query = self._attend(classes, z)
            return self._compare(_pool_classes(of_class, classes), _pool_queries(of_query, z))

        n_values = n_way * max(self.side**4, self.dim)
        return map_queries(score, z_qry, n_values, whole=self.training)

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Return the loss over all positions, and the log-probabilities of the pooled queries."""
        classes = self._class_maps(episodes.z_sup, episodes.y_sup, episodes.n_way)
        z, y = self._positions(episodes.z_qry), episodes.y_qry
        of_class, of_query = self._attend(classes, z)
        pooled = _pool_classes(of_class, classes)
        cosines = torch.einsum("tqkd,tqjd->tqjk", _unit(pooled), _unit(z))
        over_ways = _dense_cross_entropy(self.scale * cosines, y)
        rows = y[..., None, None].expand(-1, -1, 1, of_query.shape[-1])
        own = of_query.gather(2, rows).squeeze(2).unsqueeze(-1)
        base_labels = episodes.classes.gather(1, y)
        over_base = _dense_cross_entropy(self.base_classifier(own * z), base_labels)
        log_p = self._compare(pooled, _pool_queries(of_query, z))
        return self.episode_weight * over_ways + over_base, log_p

    def _positions(self, maps: Tensor) -> Tensor:
        """Average maps to the side of the head, shape ``(task, n, position, channel)``."""
        pooled = adaptive_avg_pool2d(maps.flatten(0, 1), self.side)
        return pooled.view(*maps.shape[:3], -1).mT

    def _class_maps(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Mean map of every class, shape ``(task, class, position, channel)``."""
        z = self._positions(z_sup)
        return class_means(z.flatten(2), y_sup, n_way).view(len(z), n_way, *z.shape[2:])

    def _attend(self, classes: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """Attention over positions of class and query, ``(task, query, class, position)`` each."""
        correlations = torch.einsum("tkid,tqjd->tqkij", _unit(classes), _unit(z))
        return self._fuse(correlations), self._fuse(correlations.mT)

    def _fuse(self, correlations: Tensor) -> Tensor:
        """Attention over the last axis but one of the correlations."""
        mean = correlations.mean(-2)
        kernel = self.fusion(mean.flatten(0, 2)).view_as(mean)
        fused = (correlations @ kernel.unsqueeze(-1)).squeeze(-1) / mean.shape[-1]
        return 1 + torch.softmax(fused / self.attention_temperature, dim=-1)

    def _compare(self, of_class: Tensor, of_query: Tensor) -> Tensor:
        """Log-probabilities from pooled vectors ``(task, query, class, channel)``."""
        cosines = (_unit(of_class) * _unit(of_query)).sum(-1)
        return torch.log_softmax(self.scale * cosines, dim=-1)


def _unit(z: Tensor) -> Tensor:
    """Scale vectors along the last axis to length one."""
    return z * inverse_lengths(z).unsqueeze(-1)


def _pool_classes(attention: Tensor, classes: Tensor) -> Tensor:
    """Pool class maps for every query, shape ``(task, query, class, channel)``."""
    return torch.einsum("tqki,tkid->tqkd", attention, classes) / classes.shape[2]


def _pool_queries(attention: Tensor, z: Tensor) -> Tensor:
    """Pool query maps for every class, shape ``(task, query, class, channel)``."""
    return attention @ z / z.shape[2]


def _dense_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy over positions, of logits ``(task, query, position, class)``."""
    log_p = torch.log_softmax(logits, dim=-1).flatten(0, 2)
    return nll_loss(log_p, y.unsqueeze(-1).expand(logits.shape[:3]).flatten())
