r"""Class means over the support and softly labelled queries.

.. math:: w_k = \frac{\sum_{i \in S} y_{ik} z_i + \sum_{i \in Q} q_{ik} z_i}
                     {\sum_{i \in S} y_{ik} + \sum_{i \in Q} q_{ik}}

The sums over the support are constant and computed once; an update costs 2 \|Q\| K d operations.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from infoshot.solvers.objective import class_rows
from infoshot.solvers.solver import State


@dataclass(eq=False, kw_only=True)
class MeansState(State):
    """Class weights, and the sums over the support."""

    weights: Tensor  # [task, class, dim]
    support_sum: Tensor  # [task, class, dim]
    support_count: Tensor  # [task, class, 1]

    @classmethod
    def at_class_means(cls, z_sup: Tensor, y_sup: Tensor, n_way: int, **more: Tensor) -> Self:
        """Start from the class means; ``more`` holds the fields of a subclass."""
        y = class_rows(y_sup, n_way, z_sup.dtype)
        total, count = torch.bmm(y, z_sup), y.sum(-1, keepdim=True)
        return cls(weights=total / count, support_sum=total, support_count=count, **more)

    def means(self, q: Tensor, z_qry: Tensor) -> Tensor:
        """Means over the support and the queries weighted by ``q``, ``(task, class, query)``."""
        count = q.sum(-1, keepdim=True).add_(self.support_count)
        return torch.baddbmm(self.support_sum, q, z_qry).div_(count)
