r"""ProtoNet: prototypical networks, nearest class mean with features trained for it.

Each class of a task is represented by the mean of its support features, its prototype. A query is
classified by a softmax over its squared Euclidean distances from the prototypes.

.. math:: c_k = \frac{\sum_{i \in S} y_{ik} z_i}{\sum_{i \in S} y_{ik}}, \qquad
          p_{ik} \propto \exp\left(-\frac{\tau}{2} \|z_i - c_k\|^2\right)

Training minimises the cross-entropy of the queries of episodes. The whole network is learnt; the
head has no parameters. A query is classified independently of the other queries. Cost per task: one
product, 2 \|Q\| K d operations.

Reference: J. Snell, K. Swersky, R. Zemel. Prototypical Networks for Few-shot Learning. NIPS 2017.

What differs from the original: networks average the last feature map, where the original flattens
it. Episodes have as many classes as test tasks, as in W.-Y. Chen, Y.-C. Liu, Z. Kira, Y.-C. F.
Wang, J.-B. Huang, A Closer Look at Few-shot Classification, ICLR 2019, from which published results
with residual networks come; the original has 20 classes per episode. ``n_way=20`` restores that.
"""

from typing import final

from torch import Tensor

from infoshot.core import checks
from infoshot.solvers.objective import class_means, log_posterior
from infoshot.training.episodic.head import Head


@final
class ProtoNet(Head):
    r"""Softmax over squared distances from class means.

    Parameters
    ----------
    dim, n_base_classes
        See :class:`~infoshot.training.episodic.head.Head`.
    temperature
        :math:`\tau`, the factor on half the squared distance; larger is sharper. The published
        value is 2.
    per_dimension
        Whether to divide squared distances by the number of features, as some later systems do.

    Examples
    --------
    >>> import torch
    >>> head = ProtoNet(2, 64)
    >>> z_sup, y_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[0, 1]])
    >>> head.log_posterior(z_sup, y_sup, torch.tensor([[[1.0, 0.0]]]), n_way=2).exp()
    tensor([[[0.8808, 0.1192]]])
    """

    def __init__(
        self,
        dim: int,
        n_base_classes: int,
        *,
        temperature: float = 2.0,
        per_dimension: bool = False,
    ) -> None:
        super().__init__(dim, n_base_classes)
        checks.positive("temperature", temperature)
        checks.one_of("per_dimension", per_dimension, (True, False))
        self.temperature, self.per_dimension = temperature, per_dimension

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities of the queries, shape ``(task, query, class)``."""
        tau = self.temperature / self.dim if self.per_dimension else self.temperature
        return log_posterior(z_qry, class_means(z_sup, y_sup, n_way), tau)
