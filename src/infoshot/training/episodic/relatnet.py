r"""RelatNet: a small network compares the feature map of every class with that of every query.

The maps of a class and a query are concatenated, and a learned *relation module* gives the pair a
score. Unlike the distance of a prototypical network, the comparison itself is learned.

Scores, with the map :math:`M_k`, the mean of the support maps of class :math:`k`, and the map
:math:`Z_i` of query :math:`i`:

.. math:: r_{ik} = v^\top \max(0, U \bar h_{ik} + u) + c, \qquad
          h_{ik} = B_2(B_1([M_k, Z_i])), \qquad p_{ik} \propto \exp(r_{ik}).

:math:`B_1` and :math:`B_2` are blocks of a 3 x 3 convolution with as many channels as the backbone,
batch normalisation, ReLU and 2 x 2 max-pooling, :math:`\bar h` is the mean of :math:`h` over the
positions that remain, and the hidden layer has 8 units. As published, convolutions are padded by
one position where the maps have fewer than 10 x 10.

Objective: the cross-entropy of the queries. Learned: the relation module, and the backbone. A query
gets the class of the largest score.

Cost: the first convolution is linear, so its half for the class and its half for the query are
computed once per sample, and their results are added for every pair,

.. math:: W * [M_k, Z_i] = W_M * M_k + W_Z * Z_i.

5-way tasks with 75 queries then need 80 half convolutions instead of 375 whole ones, a tenth of the
operations. A pair takes as much memory as one map. At test time queries are classified in chunks.

References: F. Sung, Y. Yang, L. Zhang, T. Xiang, P. H. S. Torr, T. M. Hospedales. Learning to
Compare: Relation Network for Few-Shot Learning. CVPR 2018. For residual networks: W.-Y. Chen,
Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang. A Closer Look at Few-shot Classification. ICLR 2019.

What differs from the original: the loss is a softmax with cross-entropy over the scores of the
classes, an option of Chen et al. for faster training, instead of a sigmoid with the squared error.
A class is the mean of its maps as in Chen et al., not the sum, so that shots may be unequal.
Positions that remain after both blocks are averaged instead of flattened, so that maps may have any
size: there is one position for 84 pixels and all networks here but wrn28-10, where nothing differs.
Running statistics of the batch normalisation are averages over batches (momentum 0.1) instead of
those of the last batch, so that a query is classified independently of the others.
"""

from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, relu

from infoshot.backbones.backbone import init_convolutions
from infoshot.core import checks
from infoshot.core.errors import ShapeError
from infoshot.solvers.objective import class_means
from infoshot.training.episodic.head import Head, Input
from infoshot.training.episodic.query_chunks import map_queries

_SMALL_MAP = 10  # smaller maps are padded
_SMALLEST_MAP = 4  # one position is left after two poolings


@final
class RelatNet(Head):
    """Scores pairs of a class and a query by a learned relation module.

    Parameters
    ----------
    dim, n_base_classes
        As for every head.
    n_hidden
        Units of the hidden layer.
    """

    reads: ClassVar[Input] = "maps"

    def __init__(self, dim: int, n_base_classes: int, *, n_hidden: int = 8) -> None:
        super().__init__(dim, n_base_classes)
        checks.at_least("n_hidden", n_hidden, 1)
        self.compare = nn.Conv2d(2 * dim, dim, 3)
        self.norm = nn.BatchNorm2d(dim)
        self.refine = nn.Conv2d(dim, dim, 3)
        self.refine_norm = nn.BatchNorm2d(dim)
        self.score = nn.Sequential(nn.Linear(dim, n_hidden), nn.ReLU(), nn.Linear(n_hidden, 1))
        init_convolutions(self)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``.

        Samples are maps, shape ``(task, n, channel, height, width)``.

        Raises
        ------
        ShapeError
            If the maps have fewer than 4 x 4 positions.
        """
        if min(z_sup.shape[3:]) < _SMALLEST_MAP:
            height, width = z_sup.shape[3:]
            raise ShapeError(
                f"maps must have at least {_SMALLEST_MAP} x {_SMALLEST_MAP} positions for two "
                f"poolings; got {height} x {width}. Use larger images."
            )
        means = class_means(z_sup.flatten(2), y_sup, n_way).view(
            len(z_sup), n_way, *z_sup.shape[2:]
        )
        padding = int(min(z_sup.shape[3:]) < _SMALL_MAP)
        of_class, of_query = self.compare.weight.split(self.dim, dim=1)
        class_half = _convolve(means, of_class, self.compare.bias, padding)

        def score(queries: Tensor) -> Tensor:
            query_half = _convolve(queries, of_query, None, padding)
            pairs = query_half.unsqueeze(2) + class_half.unsqueeze(1)
            return self._score_pairs(pairs.flatten(0, 2), padding).view(pairs.shape[:3])

        scores = map_queries(score, z_qry, class_half[0].numel(), whole=self.training)
        return torch.log_softmax(scores, dim=-1)

    def _score_pairs(self, pairs: Tensor, padding: int) -> Tensor:
        """Score the sums of both halves, shape ``(pair, channel, height, width)``."""
        h = max_pool2d(relu(self.norm(pairs)), 2)
        h = conv2d(h, self.refine.weight, self.refine.bias, padding=padding)
        h = max_pool2d(relu(self.refine_norm(h)), 2)
        return self.score(h.mean((2, 3)))  # type: ignore[no-any-return]


def _convolve(maps: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    """Convolve maps ``(task, n, channel, height, width)``."""
    out = conv2d(maps.flatten(0, 1), weight, bias, padding=padding)
    return out.view(*maps.shape[:2], *out.shape[1:])
