r"""Logistic regression on the support: the test-time head of Distill.

It minimises the cross-entropy of the labelled samples with a penalty on the weights, not on the
biases, to convergence. The queries are classified independently.

.. math:: C \sum_{i \in S} \sum_k -y_{ik} \log p_{ik} + \frac12 \sum_k \|w_k\|^2, \qquad
          p_{ik} \propto \exp(w_k^\top z_i + b_k)

Update: with scores :math:`s_{ki} = w_k^\top z_i + b_k`, the Hessian of the cross-entropy by the
scores of a sample is at most half the identity. Replacing it by this bound gives a quadratic
problem whose minimum is a ridge regression on working targets,

.. math:: t_{ki} = s_{ki} + 2 (y_{ik} - p_{ik}), \qquad
          s \leftarrow \bar t_k + (t_k - \bar t_k) G (G + \tfrac2C I)^{-1}

with the Gram matrix G of the centred support, and :math:`w, b` those of the regression. Every step
lowers the objective. The matrix is the same in all steps, so a step costs 2 K S S operations; about
60 steps suffice for features of unit length. When to prefer it: for a single query or any class
balance. The biases follow the class frequencies of the support.

It is scikit-learn's ``LogisticRegression()`` on one task. What differs from the original: the
original repeats every support image five times with random crops and flips, and evaluates features
as well as logits; here the support is that of the task. The network is trained elsewhere (the
recipe ``distill``). The temperature changes the reported probabilities only.

References: Y. Tian, Y. Wang, D. Krishnan, J. Tenenbaum, P. Isola. Rethinking Few-Shot Image
Classification: a Good Embedding Is All You Need? ECCV 2020. D. Böhning. Multinomial logistic
regression algorithm. Annals of the Institute of Statistical Mathematics, 1992.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.convex_heads import ridge_factor
from infoshot.solvers.objective import class_rows
from infoshot.solvers.solver import Rule, Solver, State


@dataclass(eq=False, kw_only=True)
class _RegressionState(State):
    y: Tensor  # one-hot support labels, [task, class, support]
    regression: Tensor  # (G + 2/C)^-1, [task, support, support]
    fitted: Tensor  # G (G + 2/C)^-1, [task, support, support]
    scores: Tensor  # of the support, [task, class, support]
    targets: Tensor  # [task, class, support]


@final
@dataclass(frozen=True, kw_only=True)
class LogisticRegression(Solver[_RegressionState]):
    """Multinomial logistic regression on the support.

    Parameters
    ----------
    inverse_penalty
        C, the weight of the cross-entropy against the squared lengths of the weights.
    n_steps
        Largest number of steps per task.
    tolerance
        Stop a task once no probability of its support changes by more than this in a step.
    temperature
        Factor on the scores in the posterior; it does not change the labels.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(LogisticRegression(), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {**Solver.rules, "inverse_penalty": checks.positive}

    inverse_penalty: float = 1.0
    n_steps: int = 1000
    tolerance: float | None = 1e-6
    temperature: float = 1.0

    def init(self, task: TaskBatch) -> _RegressionState:
        """Start from zero."""
        centred = task.z_sup - task.z_sup.mean(1, keepdim=True)
        gram = torch.bmm(centred, centred.mT)
        regression = torch.cholesky_inverse(ridge_factor(gram, 2 / self.inverse_penalty))
        y = class_rows(task.y_sup, task.n_way, gram.dtype)
        return _RegressionState(
            y=y,
            regression=regression,
            fitted=torch.bmm(gram, regression),
            scores=torch.zeros_like(y),
            targets=torch.zeros_like(y),
        )

    def step(self, task: TaskBatch, state: _RegressionState) -> _RegressionState:
        """Fit the working targets."""
        # The support's probabilities determine the weights, so that they show convergence.
        state.posterior = torch.softmax(state.scores, dim=1)
        state.targets = state.scores + 2 * (state.y - state.posterior)
        mean = state.targets.mean(-1, keepdim=True)
        state.scores = mean + torch.bmm(state.targets - mean, state.fitted)
        return state

    def prototypes(self, task: TaskBatch, state: _RegressionState) -> Tensor:
        """Weights without the biases, shape ``(task, class, dim)``."""
        mean = state.targets.mean(-1, keepdim=True)
        centred = task.z_sup - task.z_sup.mean(1, keepdim=True)
        return torch.bmm(torch.bmm(state.targets - mean, state.regression), centred)

    def log_posterior(self, task: TaskBatch, state: _RegressionState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        z = task.z_qry - task.z_sup.mean(1, keepdim=True)
        scores = torch.bmm(self.prototypes(task, state), z.mT)
        scores += state.targets.mean(-1, keepdim=True)
        return torch.log_softmax(scores.mul_(self.temperature), dim=1).mT

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities given weights, ``(task, sample, class)``; it ignores the biases."""
        return torch.log_softmax(torch.bmm(prototypes, z.mT).mul_(self.temperature), dim=1).mT

    def working_set(self, task: TaskBatch) -> int:
        """Count the support, two of its matrices, and the weights."""
        return (task.n_sup + task.n_way) * task.dim + 2 * task.n_sup**2
