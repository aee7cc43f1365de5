"""What methods of information maximization share: weights of the terms, TIM's prior and loss."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import tim_loss
from infoshot.solvers.solver import Solver, StateT


@dataclass(frozen=True, kw_only=True)
class InformationSolver(Solver[StateT]):
    """Weighs the support cross-entropy against two entropies of the queries.

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

    temperature: float = 15.0
    cross_entropy_weight: float = 0.1
    marginal_entropy_weight: float = 1.0
    conditional_entropy_weight: float = 0.1


@dataclass(frozen=True, kw_only=True)
class TimSolver(InformationSolver[StateT]):
    """Minimises ``lambda CE - beta H(Y) + alpha H(Y|X)``, see [TIM] in ``docs/math.md``.

    Parameters beyond those of ``InformationSolver``:

    Parameters
    ----------
    class_prior
        Expected share of each class among the queries, up to a factor, above 0. ``None``: all
        equal, as in the paper.
    tolerance
        Stop a task once no query probability moved by more than this in a step. ``None``: run all
        steps, as in the paper.
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
    """Logarithm of a class prior made to sum to one, shape ``(task, class, 1)``."""
    prior = torch.as_tensor(class_prior, dtype=torch.float64)
    log_prior = (prior / prior.sum()).log().to(task.z_sup)
    return log_prior.unsqueeze(-1).expand(len(task), -1, 1)
