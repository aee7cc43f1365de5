r"""Prototype+T: class means over the support and the most confident queries.

The nearest class mean labels the queries; the most confident of them then count as labelled samples
in the class means, twice.

.. math:: w_k = \frac{\sum_S y_{ik} z_i + \sum_{A_r} [\hat y_i = k] z_i}
                     {\sum_S y_{ik} + \sum_{A_r} [\hat y_i = k]}, \qquad
          p_{ik} \propto \exp\left(-\frac{\tau}{2}\|w_k - z_i\|^2\right)

with :math:`A_r` the queries of round r and :math:`\hat y` their labels before it, see
``confident_queries.py``. Nothing is learned. Cost: 4 \|Q\| K d operations per round. When to prefer
it: as a fast transductive baseline for any class balance, with queries enough for their means; a
single query is classified by the nearest class mean.

This is ProtoNet+T of the comparison of CAN, on features that were trained otherwise. What differs
from the original: the features have unit length, and confidence is a probability.

Reference: R. Hou, H. Chang, B. Ma, S. Shan, X. Chen. Cross Attention Network for Few-shot
Classification. NeurIPS 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.confident_queries import (
    N_ROUNDS,
    SHARE,
    add_most_confident,
    queries_of_round,
)
from infoshot.solvers.objective import class_means
from infoshot.solvers.solver import Rule, Solver, State


@dataclass(eq=False)
class _RoundsState(State):
    weights: Tensor  # [task, class, dim]
    n_rounds: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class PrototypeT(Solver[_RoundsState]):
    """Nearest mean of support and confident queries.

    Parameters
    ----------
    n_steps
        Rounds per task.
    share
        Share of the queries that each round adds.
    temperature
        Factor on the squared distance in the posterior; larger is sharper. With more than two
        classes it also changes which queries are the most confident.

    Examples
    --------
    >>> import torch
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(PrototypeT(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "share": partial(checks.between, low=0, high=1),
    }

    n_steps: int = N_ROUNDS
    share: float = SHARE
    temperature: float = 15.0

    def init(self, task: TaskBatch) -> _RoundsState:
        """Start from the class means of the support."""
        return _RoundsState(weights=class_means(task.z_sup, task.y_sup, task.n_way))

    def step(self, task: TaskBatch, state: _RoundsState) -> _RoundsState:
        """Classify the queries, and recompute the means with the most confident of them."""
        state.n_rounds += 1
        n = queries_of_round(task.n_qry, self.share, state.n_rounds)
        log_p = self.classify(task.z_qry, state.weights)
        z, y = add_most_confident(task.z_sup, task.y_sup, task.z_qry, log_p, n)
        state.weights = class_means(z, y, task.n_way)
        return state

    def prototypes(self, task: TaskBatch, state: _RoundsState) -> Tensor:
        """Means over support and confident queries, shape ``(task, class, dim)``."""
        return state.weights
