r"""Confident queries (+T): the most confident queries join the support, the head classifies again.

It turns an inductive system into a transductive one, at test time only: the queries whose
prediction is most certain count as further examples of their predicted classes. The training, and
all weights, are those of the head inside.

Rule, from the posterior :math:`p^{(0)} = p(\cdot \mid S)` of the head with the support :math:`S`,
in rounds :math:`r = 1, 2, \ldots`:

.. math::
    S_r = S \cup \{(z_i, \arg\max_k p^{(r-1)}_{ik}) : i \in C_r\}, \qquad
    p^{(r)} = p(\cdot \mid S_r),

where :math:`C_r` holds the most confident queries of the round, 35 and then 70 of 75; see
``solvers/confident_queries.py`` for the rule. Every round starts from the labelled support, so that
a query can leave again or change its class. All queries are classified, those in :math:`C_r` too.

Cost: one call of the head for the start and one for each round, with a larger support.

Reference: R. Hou, H. Chang, B. Ma, S. Shan, X. Chen. Cross Attention Network for Few-shot
Classification. NeurIPS 2019. There CAN, ProtoNet, MatchNet and RelatNet get the ending "+T".

What differs from the original: confidence is the probability of the predicted class. The original
compares scores before the softmax, such as the cosine with the nearest class, which ranks queries
differently where two classes are near.
"""

from typing import ClassVar, final

from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers.confident_queries import (
    N_ROUNDS,
    SHARE,
    add_most_confident,
    queries_of_round,
)
from infoshot.training.episodic.head import Episodes, Head


@final
class ConfidentQueries(Head):
    """Classifies with a head, then again with the most confident queries in the support.

    Parameters
    ----------
    head
        A head that reads vectors or maps.
    n_rounds
        How many times to classify again.
    share
        Share of the queries that join in the first round; round r takes r times as many.
    """

    transductive: ClassVar[bool] = True

    def __init__(self, head: Head, *, n_rounds: int = N_ROUNDS, share: float = SHARE) -> None:
        super().__init__(head.dim, head.n_base_classes)
        if head.reads == "images":
            raise InvalidArgumentError(
                "head must read vectors or maps, which can join the support; "
                f"{type(head).__name__} reads images."
            )
        checks.at_least("n_rounds", n_rounds, 0)
        checks.between("share", share, 0, 1)
        self.reads = head.reads  # type: ignore[misc] # that of the head inside
        self.head, self.n_rounds, self.share = head, n_rounds, share

    def log_posterior(self, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor, n_way: int) -> Tensor:
        """Return log-probabilities after the last round, shape ``(task, query, class)``."""
        log_p = self.head.log_posterior(z_sup, y_sup, z_qry, n_way)
        for number in range(1, self.n_rounds + 1):
            n = queries_of_round(z_qry.shape[1], self.share, number)
            z, y = add_most_confident(z_sup, y_sup, z_qry, log_p, n)
            log_p = self.head.log_posterior(z, y, z_qry, n_way)
        return log_p

    def loss(self, episodes: Episodes) -> tuple[Tensor, Tensor]:
        """Return loss and log-probabilities of the head inside, without confident queries."""
        return self.head.loss(episodes)

    def prototypes(self, z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
        """Return the class weights of the head inside, from the labelled support."""
        return self.head.prototypes(z_sup, y_sup, n_way)
