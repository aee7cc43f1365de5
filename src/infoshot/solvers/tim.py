"""What the methods of information maximization share: weights of the terms, prior and loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import tim_loss
from infoshot.solvers.solver import Rule, Solver, StateT


@dataclass(frozen=True, kw_only=True)
class InformationSolver(Solver[StateT]):
    """Base of the solvers that weigh the support cross-entropy against two query entropies.

    Parameters
    ----------
    temperature
        Factor on the squared distance in the posterior (tau); larger is sharper.
    cross_entropy_weight
        Weight of the support cross-entropy (lambda).
    marginal_entropy_weight
        Weight of the marginal entropy (beta; 1 in the paper). 0 leaves the term out.
    conditional_entropy_weight
        Weight of the conditional entropy (alpha). 0 leaves the term out.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "cross_entropy_weight": checks.not_negative,
        "marginal_entropy_weight": checks.not_negative,
        "conditional_entropy_weight": checks.not_negative,
    }

    temperature: float = 15.0
    cross_entropy_weight: float = 0.1
    marginal_entropy_weight: float = 1.0
    conditional_entropy_weight: float = 0.1


@dataclass(frozen=True, kw_only=True)
class TimSolver(InformationSolver[StateT]):
    """Base of the solvers that minimise ``lambda CE - beta H(Y) + alpha H(Y|X)``, see [TIM].

    It adds these parameters to those of ``InformationSolver``.

    Parameters
    ----------
    class_prior
        Expected proportion of each class among the queries, above 0; it is normalised to sum to
        one. ``None``: all equal, as in the paper.
    tolerance
        Stop a task once no query probability changes by more than this in a step. ``None``: run
        all steps, as in the paper.
    """

    class_prior: Sequence[float] | None = None
    tolerance: float | None = None

    def log_prior(self, task: TaskBatch) -> Tensor | None:
        """Logarithm of the prior, shape ``(task, class, 1)``, or ``None``."""
        return None if self.class_prior is None else log_shares(self.class_prior, task)

    def loss(self, task: TaskBatch, log_p_sup: Tensor, log_p_qry: Tensor) -> Tensor:
        """Return the TIM loss, shape ``(task,)``."""
        log_prior = self.log_prior(task)
        return tim_loss(
            log_p_sup,
            task.y_sup,
            log_p_qry,
            lam=self.cross_entropy_weight,
            beta=self.marginal_entropy_weight,
            alpha=self.conditional_entropy_weight,
            log_prior=None if log_prior is None else log_prior.squeeze(-1),
        )


def log_shares(class_prior: Sequence[float], task: TaskBatch) -> Tensor:
    """Logarithm of a class prior, normalised to sum to one, shape ``(task, class, 1)``."""
    prior = torch.as_tensor(class_prior, dtype=torch.float64)
    log_prior = (prior / prior.sum()).log().to(task.z_sup)
    return log_prior.unsqueeze(-1).expand(len(task), -1, 1)
