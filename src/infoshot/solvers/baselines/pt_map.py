r"""PT-MAP: soft k-means whose assignments match given class counts, by optimal transport.

PT-MAP assigns the queries to the classes by entropic optimal transport, so that every class gets
exactly its expected number of queries, and moves the class weights towards the resulting means.

The features of support and queries are each centred on their own mean and scaled to unit length,
:math:`x_i`. Objective and update of the assignments, from the class means of these features:

.. math:: P = \arg\min_{P \in U} \sum_{i \in Q, k} P_{ik}
              \left(\tfrac{\tau}{2}\|x_i - w_k\|^2 + \log P_{ik}\right), \qquad
          U = \{P \ge 0 : \sum_k P_{ik} = 1, \; \sum_i P_{ik} = |Q| \pi_k\}

Update of the weights:

.. math:: w_k \leftarrow w_k + \eta \left(\frac{\sum_S y_{ik} x_i + \sum_Q P_{ik} x_i}
                                   {\sum_S y_{ik} + \sum_Q P_{ik}} - w_k\right)

The posterior is P of the last weights. :math:`P_{ik} \propto \exp(v_k - \frac{\tau}{2}
\|x_i - w_k\|^2)` over k, so its rows are exact for any v, and v minimises a convex function of K
numbers whose gradient is the excess of the column sums. Sinkhorn's iterations, :math:`v_k
\leftarrow v_k + \log(|Q| \pi_k / \sum_i P_{ik})`, need tens to hundreds of rounds; damped Newton
iterations, which converge from any start, need two or three on average. Each solve starts from the
previous v.

Cost: 4 \|Q\| K d operations per step, and 2 \|Q\| K K per Newton iteration. When to prefer it:
where the class counts of the queries are known; it fails where they are wrong. A single query
equals its own mean, so the posterior is the prior. The prototypes are in the space of the centred
features. The caller applies the power transform, which needs non-negative features.

References: Y. Hu, V. Gripon, S. Pateux. Leveraging the Feature Distribution in Transfer-based
Few-Shot Learning. ICANN 2021. M. Cuturi. Sinkhorn Distances. NIPS 2013. C. Brauer et al. A
Sinkhorn-Newton method for entropic optimal transport. 2017. The damping is that of T. Sun,
Q. Tran-Dinh. Generalized self-concordant functions. Mathematical Programming 2019.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_logits, inverse_lengths, log_posterior
from infoshot.solvers.soft_means import MeansState
from infoshot.solvers.solver import Rule, Solver
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
        Fraction of the way to the means that a step takes (:math:`\eta`), at most 1.
    class_prior
        Proportion of each class among the queries, above 0 (:math:`\pi`); it is normalised to sum
        to one. ``None``: all equal, as in the paper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.6, 0.5], [0.1, 0.9], [0.2, 0.8]]])
    >>> solution = solve(PtMap(), TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2))
    >>> solution.probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "prototype_step_size": checks.share_or_none,
    }

    n_steps: int = 20
    temperature: float = 20.0
    prototype_step_size: float = 0.2
    class_prior: Sequence[float] | None = None

    def validate(self, n_way: int | None = None) -> None:
        """Raise if a hyperparameter has a value that is not allowed."""
        checks.positive("PtMap: prototype_step_size", self.prototype_step_size)  # not None
        super().validate(n_way)

    def init(self, task: TaskBatch) -> _PtMapState:
        """Centre the features; start from the class means and one Sinkhorn iteration."""
        prior = (1.0,) * task.n_way if self.class_prior is None else self.class_prior
        state = _PtMapState.at_class_means(
            _centre(task.z_sup),
            task.y_sup,
            task.n_way,
            x=_centre(task.z_qry),
            log_count=log_shares(prior, task) + math.log(task.n_qry),
            offset=task.z_sup.new_empty(0),
        )
        log_p = torch.log_softmax(class_logits(state.x, state.weights, self.temperature), dim=1)
        state.offset = state.log_count - torch.logsumexp(log_p, dim=-1, keepdim=True)
        return state

    def step(self, task: TaskBatch, state: _PtMapState) -> _PtMapState:
        """Update the assignments, then move the weights towards their means."""
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
        """Class weights in the space of the centred features, shape ``(task, class, dim)``."""
        return state.weights

    def classify(self, z: Tensor, prototypes: Tensor) -> Tensor:
        """Log-probabilities of any samples, centred on their own mean, without class counts."""
        return log_posterior(_centre(z), prototypes, self.temperature)


def _centre(z: Tensor) -> Tensor:
    """Subtract the mean of each task and scale to unit length; a sample at the mean stays zero."""
    x = z - z.mean(1, keepdim=True)
    return x.mul_(inverse_lengths(x).unsqueeze(-1))


def _balance(logits: Tensor, log_count: Tensor, offset: Tensor) -> Tensor:
    """Offsets of the logits that give every class its count, by damped Newton iterations.

    With P the assignments and D their column sums, an iteration solves (D - P P^T) step = missing
    counts, scaled by D from both sides and slightly regularised, and takes the fraction
    log(1 + r)/r of it, where r is the range of the step. A task stops independently of the others,
    one iteration after its counts are right.
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
        step -= step.mean(1, keepdim=True)  # a common offset has no effect
        reach = step.amax(1, keepdim=True) - step.amin(1, keepdim=True)
        damping = torch.log1p(reach).div_(reach.clamp_(min=tiny))
        offset = offset + step * damping * running
        running &= (lacking.abs() > small * count).any(1, keepdim=True)
        if not running.any():
            break
    return offset
