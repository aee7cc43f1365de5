r"""Matching: a softmax-weighted vote of the labelled samples.

Every labelled sample votes for its class, weighted by a softmax over its cosine with the query.
This is how a trained matching network classifies, applied to features that were trained otherwise.

.. math:: p_{ik} = \frac{\sum_{j \in S} y_{jk} \exp(\tau \cos(z_i, z_j))}
                        {\sum_{j \in S} \exp(\tau \cos(z_i, z_j))}

Cost: one product, 2 \|Q\| \|S\| d operations. Sums are computed in log space relative to the
largest vote, so any temperature works. When to prefer it: as a baseline for any class balance among
the queries, which it classifies independently. With unequal shots it favours the classes with more
examples, which have more votes.

Reference: O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra. Matching Networks for
One Shot Learning. NIPS 2016.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_cosines, class_means, class_rows
from infoshot.solvers.solver import Solver, State


@dataclass(eq=False)
class _MatchingState(State):
    weights: Tensor  # [task, class, dim]


@final
@dataclass(frozen=True, kw_only=True)
class Matching(Solver[_MatchingState]):
    """Attention over the labelled samples, by cosine.

    Parameters
    ----------
    temperature
        Factor on the cosine of query and labelled sample; larger is sharper and approaches the
        label of the nearest sample.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[2.0, 0.0]]]), n_way=2)
    >>> solve(Matching(), tasks).probabilities
    tensor([[[0.7311, 0.2689]]])
    """

    temperature: float = 1.0

    def init(self, task: TaskBatch) -> _MatchingState:
        """Compute the class means; the posterior uses the labelled samples directly."""
        weights = class_means(task.z_sup, task.y_sup, task.n_way)
        return _MatchingState(weights=weights)

    def log_posterior(self, task: TaskBatch, state: _MatchingState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return log_votes(task.z_qry, task.z_sup, task.y_sup, task.n_way, self.temperature)

    def prototypes(self, task: TaskBatch, state: _MatchingState) -> Tensor:
        """Class means, shape ``(task, class, dim)``; the votes do not use them."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities with one vote per class, ``(task, sample, class)``."""
        return torch.log_softmax(class_cosines(z, prototypes).mul_(self.temperature), dim=1).mT


def log_votes(z_qry: Tensor, z_sup: Tensor, y_sup: Tensor, n_way: int, tau: float) -> Tensor:
    """Log-probabilities of queries by votes of labelled samples, ``(task, query, class)``."""
    votes = class_cosines(z_qry, z_sup).mul_(tau)
    label = y_sup.unsqueeze(-1).expand_as(votes)
    top = votes.new_full((len(votes), n_way, votes.shape[2]), -math.inf)
    top.scatter_reduce_(1, label, votes, reduce="amax")
    shares = votes.sub_(top.gather(1, label)).exp_()
    sums = torch.bmm(class_rows(y_sup, n_way, votes.dtype), shares)
    return torch.log_softmax(sums.log_().add_(top), dim=1).mT
