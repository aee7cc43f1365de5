r"""FEAT: class means adapted to each other by self-attention.

The classes of a task attend to one another, so that each prototype depends on the classes that it
competes with. Queries are not adapted; the nearest adapted mean classifies them.

.. math:: p_k = LN\left(c_k + W_o \sum_l a_{kl} W_v c_l + b_o\right), \qquad
          a_{kl} \propto \exp\left(\frac{(W_q c_k)^\top W_k c_l}{\sqrt{d}}\right), \qquad
          \log p(k | z_i) = -\frac{\tau}{2} \|z_i - p_k\|^2 + const

with class means :math:`c_k` and layer normalisation LN. Learnt: the four matrices, :math:`b_o`, and
gain and offset of LN; in training 10 % of the attention weights and half of the output of
:math:`W_o` are dropped.

Objective: the cross-entropy of the queries, plus a weight times the contrastive regulariser. For it
the samples of a class, support and queries together, attend to one another, and the cross-entropy
of all samples as they were is computed with the means of their adapted vectors as prototypes.

Cost per task: 8 K d d operations, in training 8 N d d + 4 N N d for all N samples.

The published settings for ResNet-12 on mini-ImageNet divide squared distances by 64; the
regulariser divides by 64 and weighs 0.01 (1 shot), or divides by 32 and weighs 0.1 (5 shots), the
defaults here.

What differs from the original: tasks are batched, and shots may be unequal, because the attention
within classes is one attention over all samples with a mask.

Reference: H.-J. Ye, H. Hu, D.-C. Zhan, F. Sha. Few-Shot Learning via Embedding Adaptation with
Set-to-Set Functions. CVPR 2020.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from infoshot.core import checks
from infoshot.solvers.objective import class_means, log_posterior
from infoshot.training.episodic.head import Episodes, Head, query_cross_entropy


@final
class Feat(Head):
    """Nearest class mean, where the means attend to one another.

    Parameters
    ----------
    dim, n_base_classes
        As in :class:`Head`.
    temperature
        Factor on half the squared distance; larger is sharper.
    regulariser_temperature
        The same in the regulariser.
    regulariser_weight
        Weight of the regulariser.
    dropout, attention_dropout
        Shares of the output and of the attention weights that are dropped in training.
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        temperature: float = 2 / 64,
        regulariser_temperature: float = 2 / 32,
        regulariser_weight: float = 0.1,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.positive("temperature", temperature)
        checks.positive("regulariser_temperature", regulariser_temperature)
        checks.not_negative("regulariser_weight", regulariser_weight)
        checks.share_below_one("dropout", dropout)
        checks.share_below_one("attention_dropout", attention_dropout)
        self.temperature, self.regulariser_temperature = temperature, regulariser_temperature
        self.regulariser_weight, self.attention_dropout = regulariser_weight, attention_dropout
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.output = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.xavier_normal_(layer.weight)

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        return log_posterior(z_qry, self.prototypes(z_sup, y_sup, n_way), self.temperature)

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Adapted class means, shape ``(task, class, dim)``."""
        return self._adapt(class_means(z_sup, y_sup, n_way))

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Cross-entropy of the queries and regulariser, and the log-probabilities."""
        loss, log_p = super().loss(episodes)
        if self.regulariser_weight:
            loss = loss + self.regulariser_weight * self._regulariser(episodes)
        return loss, log_p

    def _regulariser(self, episodes: Episodes) -> Tensor:
        """Cross-entropy of all samples at the means of vectors adapted within their class."""
        z = torch.cat((episodes.z_sup, episodes.z_qry), dim=1)
        y = torch.cat((episodes.y_sup, episodes.y_qry), dim=1)
        adapted = self._adapt(z, same_class=y.unsqueeze(1) == y.unsqueeze(2))
        centres = class_means(adapted, y, episodes.n_way)
        return query_cross_entropy(log_posterior(z, centres, self.regulariser_temperature), y)

    def _adapt(self, x: Tensor, same_class: Tensor | None = None) -> Tensor:
        """Let vectors attend to one another, ``(task, n, dim)``, or to those of the same class."""
        attended = scaled_dot_product_attention(
            self.query(x),
            self.key(x),
            self.value(x),
            attn_mask=same_class,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )
        return self.norm(x + self.dropout(self.output(attended)))  # type: ignore[no-any-return]
