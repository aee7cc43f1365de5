r"""How strongly to favour balanced classes: the decision of TIM-auto, steps 2 and 3 of its module.

Two trial solves, one with a small and one with a larger weight of the marginal entropy, give class
proportions :math:`\hat p`. Their imbalance is :math:`D = 1 - H(\hat p) / \log K`: 0 for equal
proportions, 1 for a single class. With few examples and few queries an imbalance also arises by
chance, on the scale :math:`\nu` with
:math:`\nu^2 = \frac{1}{K^2} \sum_k \frac{1}{n_k} + \frac{1}{|Q|}`. The weight is therefore

.. math:: \beta = 0.8 \exp\left(-14 \, (0.2 D_{small} + 0.8 D_{large}) / \nu\right),
          \quad \text{at least } 0.03.

All constants were chosen on the validation classes of mini-ImageNet, see ``docs/tim-auto.md``.
"""

import dataclasses
import math

import torch
from torch import Tensor

from infoshot.core.parallel import map_blocks
from infoshot.core.types import TaskBatch
from infoshot.solvers.adm_blocks import AdmState
from infoshot.solvers.tim_adm import TimAdm

TRIAL_WEIGHTS = (0.065, 0.12)  # of the marginal entropy in the two trial solves
_SHARE_OF_SMALL = 0.2
_AT_BALANCE, _DECAY, _LEAST = 0.8, 14.0, 0.03
BALANCED, _SLIGHTLY_IMBALANCED = 0.2, 0.08  # weights from which a decision is described so


def imbalance(small: Tensor, large: Tensor) -> Tensor:
    """Imbalance of the class proportions of both trial solves, each ``(..., class)``."""
    return _imbalance(small).lerp(_imbalance(large), 1 - _SHARE_OF_SMALL)


def chance(n_shots: Tensor, n_queries: int) -> Tensor:
    """Nu, the scale of chance, from the number of examples of each class, ``(..., class)``."""
    n_way = n_shots.shape[-1]
    return n_shots.reciprocal().sum(-1).div_(n_way**2).add_(1 / n_queries).sqrt_()


def choose_weight(imbalance: Tensor, nu: Tensor) -> Tensor:
    """Weight of the marginal entropy for this imbalance of the trial solves."""
    log_beta = math.log(_AT_BALANCE) - _DECAY * imbalance / nu
    return log_beta.exp_().clamp_(min=_LEAST)


def try_solves(adm: TimAdm, task: TaskBatch, start: AdmState, n_steps: int) -> Tensor:
    """Imbalance of the class proportions after both trial solves, shape ``(task,)``."""

    def mean_prediction(beta: float) -> Tensor:
        state = dataclasses.replace(start, weights=start.weights.clone(), balance=beta / (1 + beta))
        state = adm.advance(task, state, n_steps)
        return adm.log_posterior(task, state).exp().mean(1)

    return imbalance(*map_blocks(mean_prediction, TRIAL_WEIGHTS))


def describe_evidence(counts: str, imbalance: float, nu: float) -> str:
    """Say what the trial solves found; ``counts`` says how many examples and queries there are."""
    by_chance = nu * math.log(_AT_BALANCE / BALANCED) / _DECAY
    return (
        f"The estimated class imbalance is {imbalance:.1%} (0%: equal classes, 100%: a single "
        f"class); {counts}, up to {by_chance:.1%} is explained by chance."
    )


def describe_decision(counts: str, imbalance: float, nu: float, beta: float) -> str:
    """Say what the trial solves found and what was decided."""
    if beta >= BALANCED:
        decision = "Balanced classes are favoured"
    elif beta >= _SLIGHTLY_IMBALANCED:
        decision = "Balanced classes are only weakly favoured"
    elif beta > _LEAST:
        decision = "Balanced classes are hardly favoured"
    else:
        decision = "The class proportions are estimated from the queries"
    evidence = describe_evidence(counts, imbalance, nu)
    return f"{evidence} {decision} (weight of the marginal entropy {beta:.2f}; TIM has 1)."


def describe_too_few(n_queries: int, n_way: int) -> str:
    """Say that there is nothing to decide."""
    return (
        f"{n_queries} queries for {n_way} classes are too few to use them together: each was "
        "classified independently, by the nearest (shrunken) class mean."
    )


def evenly_spaced(n: int, n_wanted: int) -> Tensor:
    """At most ``n_wanted`` evenly spaced numbers below ``n``, in increasing order."""
    n_wanted = min(n, n_wanted)
    return torch.arange(n_wanted) * n // n_wanted


def _imbalance(shares: Tensor) -> Tensor:
    """One minus the entropy of class proportions relative to its maximum."""
    entropy: Tensor = torch.special.entr(shares).sum(-1)
    return 1 - entropy / math.log(shares.shape[-1])
