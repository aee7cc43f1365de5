r"""PT-MAP: soft k-means whose assignments have exactly the class counts that are expected.

The features of support and queries are each centred on their own mean and scaled to length one,
:math:`x_i`. From class means of these it repeats

.. math:: P = \arg\min_{P \in U} \sum_{i \in Q, k} P_{ik}
              \left(\tfrac{\tau}{2}\|x_i - w_k\|^2 + \log P_{ik}\right), \qquad
          U = \{P \ge 0 : \sum_k P_{ik} = 1, \; \sum_i P_{ik} = |Q| \pi_k\}

.. math:: w_k \leftarrow w_k + \eta \left(\frac{\sum_S y_{ik} x_i + \sum_Q P_{ik} x_i}
                                   {\sum_S y_{ik} + \sum_Q P_{ik}} - w_k\right)

and answers with P of the last weights. :math:`P_{ik} \propto \exp(v_k - \frac{\tau}{2}
\|x_i - w_k\|^2)` over k, so its rows are exact for any v, and v minimises a convex function of K
numbers whose gradient is what the columns have too much. Sinkhorn's rounds, :math:`v_k \leftarrow
v_k + \log(|Q| \pi_k / \sum_i P_{ik})`, find it in tens to hundreds; Newton's, damped so that they
converge from anywhere, in two or three on average. The previous v is the next start.

A step costs 4 \|Q\| K d operations, and 2 \|Q\| K K for each of Newton's rounds. It is *given the
class counts* of the queries, and fails where they are wrong. A single query is its own mean:
nothing remains of it, and the answer is the prior. The prototypes live among the centred features.
The method wants non-negative features under a power transform first, which is left to the caller.

References: Y. Hu, V. Gripon, S. Pateux. Leveraging the Feature Distribution in Transfer-based
Few-Shot Learning. ICANN 2021. M. Cuturi. Sinkhorn Distances. NIPS 2013. C. Brauer et al. A
Sinkhorn-Newton method for entropic optimal transport. 2017. The damping is that of T. Sun,
Q. Tran-Dinh. Generalized self-concordant functions. Mathematical Programming 2019.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_logits, inverse_lengths, log_posterior
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Solver
from infoshot.solvers.tim import log_shares

_MOST_ROUNDS = 200


@dataclass(eq=False, kw_only=True)
class _PtMapState(MeansState):
    x: Tensor  # prepared queries, [task, query, dim]
    log_count: Tensor  # expected queries of each class, logarithms, [task, class, 1]
    offset: Tensor  # v of the module, [task, class, 1]


@final
@dataclass(frozen=True, kw_only=True)
class PtMap(Solver[_PtMapState]):
    r"""Power transform and maximum a posteriori: balanced assignments by optimal transport.

    Parameters
    ----------
    n_steps
        Updates of the weights per task.
    temperature
        Factor on the squared distance (:math:`\tau`); larger is sharper.
    prototype_step_size
        How far the weights go towards the means (:math:`\eta`), up to 1, all the way.
    class_prior
        Share of each class among the queries, up to a factor, above 0 (:math:`\pi`). ``None``: all
        equal, as in the paper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(PtMap(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    n_steps: int = 20
    temperature: float = 20.0
    prototype_step_size: float = 0.2
    class_prior: Sequence[float] | None = None

    def validate(self, n_way: int | None = None) -> None:
        """Raise if a hyperparameter has a value that is not allowed."""
        checks.positive("PtMap: prototype_step_size", self.prototype_step_size)  # not None
        super().validate(n_way)

    def init(self, task: TaskBatch) -> _PtMapState:
        """Prepare the features; start from class means and one round of Sinkhorn."""
        prior = (1.0,) * task.n_way if self.class_prior is None else self.class_prior
        state = _PtMapState.at_class_means(
            _centred(task.z_sup),
            task.y_sup,
            task.n_way,
            x=_centred(task.z_qry),
            log_count=log_shares(prior, task) + math.log(task.n_qry),
            offset=task.z_sup.new_empty(0),
        )
        log_p = torch.log_softmax(class_logits(state.x, state.weights, self.temperature), dim=1)
        state.offset = state.log_count - torch.logsumexp(log_p, dim=-1, keepdim=True)
        return state

    def step(self, task: TaskBatch, state: _PtMapState) -> _PtMapState:
        """Assignments from the weights, then weights towards their means."""
        logits = class_logits(state.x, state.weights, self.temperature)
        state.offset = _balance(logits, state.log_count, state.offset)
        state.posterior = torch.softmax(logits.add_(state.offset), dim=1)
        means = state.means(state.posterior, state.x)
        state.weights.lerp_(means, self.prototype_step_size)
        return state

    def log_posterior(self, task: TaskBatch, state: _PtMapState) -> Tensor:
        """Logarithm of the assignments of the queries, shape ``(task, query, class)``."""
        logits = class_logits(state.x, state.weights, self.temperature)
        offset = _balance(logits, state.log_count, state.offset)
        return torch.log_softmax(logits.add_(offset), dim=1).mT

    def prototypes(self, task: TaskBatch, state: _PtMapState) -> Tensor:
        """Class weights among the centred features, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples, centred on their own mean; no class counts."""
        return log_posterior(_centred(z), prototypes, self.temperature)


def _centred(z: Tensor) -> Tensor:
    """Features minus their mean in each task, of length one; what is at the mean stays zero."""
    x = z - z.mean(1, keepdim=True)
    return x.mul_(inverse_lengths(x).unsqueeze(-1))


def _balance(logits: Tensor, log_count: Tensor, offset: Tensor) -> Tensor:
    """Offsets of the logits that give every class its count, from a guess.

    With P the assignments and D their column sums, a round solves (D - P P^T) step = what is
    lacking, scaled by D from both sides and made a little more definite, and goes log(1 + r)/r of
    it, r the range of the step. A task stops by itself, one round after its counts are right.
    """
    limits = torch.finfo(logits.dtype)
    small, tiny = limits.eps ** (2 / 3), limits.tiny
    count = log_count.exp()
    identity = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device)
    running = torch.ones_like(count[:, :1], dtype=torch.bool)
    for _ in range(_MOST_ROUNDS):
        p = torch.softmax(logits + offset, dim=1)
        columns = p.sum(-1, keepdim=True)
        lacking = count - columns
        scale = columns.add_(count, alpha=small).rsqrt_()
        p.mul_(scale)
        curvature = torch.baddbmm(identity, p, p.mT, alpha=small - 1)
        step = torch.linalg.solve_ex(curvature, lacking * scale).result.mul_(scale)
        step -= step.mean(1, keepdim=True)  # an offset common to all classes means nothing
        reach = step.amax(1, keepdim=True) - step.amin(1, keepdim=True)
        damping = torch.log1p(reach).div_(reach.clamp_(min=tiny))
        offset = offset + step * damping * running
        running &= (lacking.abs() > small * count).any(1, keepdim=True)
        if not running.any():
            break
    return offset
