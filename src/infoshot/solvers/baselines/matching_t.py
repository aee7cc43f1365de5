r"""Matching+T: a vote of the labelled samples and the most confident queries.

The vote of ``matching.py`` labels the queries; the most confident of them then vote as labelled
samples, twice.

.. math:: p_{ik} \propto \frac{1}{n_k} \left(\sum_{j \in S} y_{jk} \exp(\tau \cos(z_i, z_j))
                       + \sum_{j \in A_r} [\hat y_j = k] \exp(\tau \cos(z_i, z_j))\right)

with :math:`A_r` the queries of round r, :math:`\hat y` their labels before it, see
``confident_queries.py``, and :math:`n_k` the number of terms. Nothing is learned. Cost:
2 \|Q\| (\|S\| + \|Q\|) d operations per round. When to prefer it: as a transductive baseline for
balanced queries; a single query is classified by the support alone.

Votes are averaged, which changes nothing in ``matching`` with equal shots. Added queries are not
balanced: with sums, and votes that differ little at the published temperature of 1, the class with
the most voters gets all queries after two rounds.

This is MatchNet+T of the comparison of CAN, on features that were trained otherwise. What differs
from the original: confidence is a probability; how the original weighs the voters of a class is not
published.

Reference: R. Hou, H. Chang, B. Ma, S. Shan, X. Chen. Cross Attention Network for Few-shot
Classification. NeurIPS 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.baselines.matching import log_votes
from infoshot.solvers.confident_queries import (
    N_ROUNDS,
    SHARE,
    add_most_confident,
    queries_of_round,
)
from infoshot.solvers.objective import class_cosines, class_counts, class_means
from infoshot.solvers.solver import Rule, Solver, State


@dataclass(eq=False)
class _VotersState(State):
    z: Tensor  # samples that vote, [task, voter, dim]
    y: Tensor  # [task, voter]
    n_rounds: int = 0


@final
@dataclass(frozen=True, kw_only=True)
class MatchingT(Solver[_VotersState]):
    """Attention over the labelled samples and the confident queries, by cosine.

    Parameters
    ----------
    n_steps
        Rounds per task.
    share
        Share of the queries that each round adds.
    temperature
        Factor on the cosine of two samples; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(MatchingT(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "share": partial(checks.between, low=0, high=1),
    }

    n_steps: int = N_ROUNDS
    share: float = SHARE
    temperature: float = 1.0

    def init(self, task: TaskBatch) -> _VotersState:
        """Let the support vote."""
        return _VotersState(z=task.z_sup, y=task.y_sup)

    def step(self, task: TaskBatch, state: _VotersState) -> _VotersState:
        """Classify the queries, and let the most confident of them vote."""
        state.n_rounds += 1
        n = queries_of_round(task.n_qry, self.share, state.n_rounds)
        log_p = self.log_posterior(task, state)
        state.z, state.y = add_most_confident(task.z_sup, task.y_sup, task.z_qry, log_p, n)
        return state

    def log_posterior(self, task: TaskBatch, state: _VotersState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        log_sums = log_votes(task.z_qry, state.z, state.y, task.n_way, self.temperature)
        n_voters = class_counts(state.y, task.n_way).to(log_sums.dtype).unsqueeze(1)
        return torch.log_softmax(log_sums - n_voters.log(), dim=-1)

    def prototypes(self, task: TaskBatch, state: _VotersState) -> Tensor:
        """Class means of the voters, shape ``(task, class, dim)``; the votes do not use them."""
        return class_means(state.z, state.y, task.n_way)

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities with one vote per class, ``(task, sample, class)``."""
        return torch.log_softmax(class_cosines(z, prototypes).mul_(self.temperature), dim=1).mT

    def working_set(self, task: TaskBatch) -> int:
        """Count the samples, and the votes of all of them for every query."""
        n_voters = task.n_sup + task.n_qry
        return n_voters * task.dim + 2 * n_voters * task.n_qry
