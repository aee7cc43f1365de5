r"""MatchNet: matching networks, attention over the labelled samples with features trained for it.

Every labelled sample votes for its class, weighted by the exponential of its cosine with the query.
A class gets the mean of its votes.

.. math:: p_{ik} \propto \frac{1}{n_k} \sum_{j \in S} y_{jk} \exp(\tau \cos(z_i, z_j)), \qquad
          n_k = \sum_{j \in S} y_{jk}

Training minimises the cross-entropy of the queries of episodes. The whole network is learnt; the
head has no parameters. A query is classified independently of the other queries. Cost per task: one
product, 2 \|Q\| \|S\| d operations.

Reference: O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra. Matching Networks for
One Shot Learning. NIPS 2016.

What differs from the original: there are no full context embeddings, the recurrent networks over
the support; features are used as the backbone computes them. The original does not scale the
cosine. The factor of 100 is that of W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F. Wang, J.-B. Huang,
A Closer Look at Few-shot Classification, ICLR 2019, from which published results with residual
networks come; they also set negative cosines to zero, which we do not. The original takes the sum
of the votes of a class, which is the same with equal shots. With unequal shots the sum favours the
classes with more examples; so it does with confident queries (+T) in the support, which then reduce
the accuracy.
"""

from typing import final

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.core import checks
from infoshot.solvers.objective import class_rows
from infoshot.training.episodic.head import Head


@final
class MatchNet(Head):
    r"""Attention over the labelled samples, by cosine.

    Parameters
    ----------
    dim, n_base_classes
        See :class:`~infoshot.training.episodic.head.Head`.
    temperature
        :math:`\tau`, the factor on the cosine of query and labelled sample; larger is sharper and
        approaches the label of the nearest sample.

    Examples
    --------
    >>> head = MatchNet(2, 64, temperature=1.0)
    >>> z_sup, y_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[0, 1]])
    >>> head.log_posterior(z_sup, y_sup, torch.tensor([[[2.0, 0.0]]]), n_way=2).exp()
    tensor([[[0.7311, 0.2689]]])
    """

    def __init__(self, dim: int, n_base_classes: int, *, temperature: float = 100.0) -> None:
        super().__init__(dim, n_base_classes)
        checks.positive("temperature", temperature)
        self.temperature = temperature

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        cosines = normalize(z_qry, dim=-1) @ normalize(z_sup, dim=-1).mT
        log_votes = (self.temperature * cosines).unsqueeze(2)
        of_class = class_rows(y_sup, n_way, torch.bool).unsqueeze(1)  # [task, 1, class, support]
        log_sums = log_votes.masked_fill(~of_class, -torch.inf).logsumexp(-1)
        n = of_class.sum(-1, dtype=cosines.dtype).clamp_min(1)
        return torch.log_softmax(log_sums - n.log(), dim=-1)
