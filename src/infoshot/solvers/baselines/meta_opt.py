r"""The heads of MetaOptNet: ridge regression, or a support vector machine, fitted to the support.

A convex problem gives the class weights, and queries are classified independently by

.. math:: p_{ik} \propto \exp(\tau w_k^\top z_i)

``convex_heads.py`` has both problems and their solution. Cost: 2 S S d operations, and S S S / 3
for ridge regression or about 200 iterations of 2 K S S for the machine. When to prefer them: as
baselines for a single query or any class balance. The machine ignores samples that are far on the
right side of its margin.

The published regularization is for features as the network computes them, whose length is about
ten. On features of unit length it is so strong that the weights are almost class sums (70 % instead
of 73 to 74 % with five shots on our features).

What differs from the original: the network is not trained through the head, see
``training/episodic`` for that, and the scale :math:`\tau`, which the original learns, is 1. It does
not change the labels. The released code solves the ridge problem for labels of 2 instead of 1,
which :math:`\tau` absorbs.

Reference: K. Lee, S. Maji, A. Ravichandran, S. Soatto. Meta-Learning with Differentiable Convex
Optimization. CVPR 2019.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.convex_heads import ridge_weights, svm_weights
from infoshot.solvers.solver import Rule, Solver, State


@dataclass(eq=False)
class _WeightsState(State):
    weights: Tensor  # [task, class, dim]


@final
@dataclass(frozen=True, kw_only=True)
class MetaOpt(Solver[_WeightsState]):
    """Linear classifier that solves a convex problem on the support.

    Parameters
    ----------
    problem
        ``"ridge"``: ridge regression on the labels; ``"svm"``: support vector machine.
    regularization
        Weight of the squared lengths in ridge regression.
    cost
        Weight of the violations of the margin in the support vector machine.
    temperature
        Factor on the scores; it does not change the labels.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), torch.tensor([[[0.9, 0.1]]]), n_way=2)
    >>> solve(MetaOpt(problem="svm"), tasks).probabilities.argmax(-1)
    tensor([[0]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "problem": partial(checks.one_of, allowed=("ridge", "svm")),
        "regularization": checks.positive,
        "cost": checks.positive,
    }

    problem: Literal["ridge", "svm"] = "ridge"
    regularization: float = 50.0
    cost: float = 0.1
    temperature: float = 1.0

    def init(self, task: TaskBatch) -> _WeightsState:
        """Solve the problem."""
        support = task.z_sup, task.y_sup, task.n_way
        if self.problem == "ridge":
            return _WeightsState(weights=ridge_weights(*support, self.regularization))
        return _WeightsState(weights=svm_weights(*support, self.cost))

    def prototypes(self, task: TaskBatch, state: _WeightsState) -> Tensor:
        """Weights of the classifier, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples given the weights, ``(task, sample, class)``."""
        return torch.log_softmax(torch.bmm(prototypes, z.mT).mul_(self.temperature), dim=1).mT

    def working_set(self, task: TaskBatch) -> int:
        """Count the support, its Gram matrix and its factor, and a few matrices of scores."""
        n = task.n_sup
        return (n + task.n_way) * task.dim + 2 * n * n + 8 * task.n_way * n
