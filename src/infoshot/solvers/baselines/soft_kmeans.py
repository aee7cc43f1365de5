r"""Soft k-means: queries join the class means by their posterior.

Alternates, from class means,

.. math:: q_{ik} \propto \exp\left(-\frac{\tau}{2}\|z_i - w_k\|^2\right), \qquad
          w_k = \frac{\sum_S y_{ik} z_i + \sum_Q q_{ik} z_i}{\sum_S y_{ik} + \sum_Q q_{ik}}

which is expectation maximization of a mixture of equal spheres with equal shares whose labelled
samples are known. Each alternation lowers its negative log-likelihood. A step costs 4 \|Q\| K d
operations. It assumes compact classes that all occur about as often: the mean of a class that does
not drifts to the queries of others.

Reference: M. Ren, E. Triantafillou, S. Ravi, J. Snell, K. Swersky, J. B. Tenenbaum, H. Larochelle,
R. S. Zemel. Meta-Learning for Semi-Supervised Few-Shot Classification. ICLR 2018.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_logits
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Solver


@final
@dataclass(frozen=True, kw_only=True)
class SoftKMeans(Solver[MeansState]):
    """Soft k-means with known labels on the support.

    Parameters
    ----------
    n_steps
        Alternations per task; one, as published, is also best on our validation classes.
    temperature
        Factor on the squared distance in the posterior; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(SoftKMeans(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    n_steps: int = 1
    temperature: float = 15.0

    def init(self, task: TaskBatch) -> MeansState:
        """Start from class means."""
        return MeansState.at_class_means(task.z_sup, task.y_sup, task.n_way)

    def step(self, task: TaskBatch, state: MeansState) -> MeansState:
        """Soft labels from the weights, then weights from the soft labels."""
        logits = class_logits(task.z_qry, state.weights, self.temperature)
        state.posterior = torch.softmax(logits, dim=1)
        state.weights = state.means(state.posterior, task.z_qry)
        return state

    def prototypes(self, task: TaskBatch, state: MeansState) -> Tensor:
        """Means of support and softly labelled queries, shape ``(task, class, dim)``."""
        return state.weights
