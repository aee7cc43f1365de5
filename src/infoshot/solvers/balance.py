r"""How far to trust an equal class balance: the decision of TIM-auto, step 2 and 3 of its module.

Rehearsals with a loose and a firm weight of the marginal entropy come out more or less uneven,
:math:`D = 1 - H(\hat p) / \log K`, 0 for equal shares and 1 for a single class. With few examples
and few queries they do so by chance, as
:math:`\nu^2 = \frac{1}{K^2} \sum_k \frac{1}{n_k} + \frac{1}{|Q|}`, so the weight is

.. math:: \beta = 0.8 \exp\left(-14 \, (0.2 D_{loose} + 0.8 D_{firm}) / \nu\right),
          \quad \text{at least } 0.04.

All constants were chosen on the validation classes of mini-ImageNet, see ``docs/tim-auto.md``.
"""

import math

import torch
from torch import Tensor

REHEARSED = (0.065, 0.12)  # weights of the marginal entropy in the rehearsals, loose and firm
_SHARE_OF_LOOSE = 0.2
_AT_BALANCE, _FALL, _LEAST = 0.8, 14.0, 0.04
EVEN, _SOMEWHAT_EVEN = 0.2, 0.08  # from where on a weight is called what in words


def unevenness(loose: Tensor, firm: Tensor) -> Tensor:
    """How uneven the shares of the two rehearsals are together; shares are ``(..., class)``."""
    return _uneven(loose).lerp(_uneven(firm), 1 - _SHARE_OF_LOOSE)


def chance(n_shots: Tensor, n_queries: int) -> Tensor:
    """Nu, from the examples of each class, ``(..., class)``."""
    n_way = n_shots.shape[-1]
    return n_shots.reciprocal().sum(-1).div_(n_way**2).add_(1 / n_queries).sqrt_()


def decided_weight(uneven: Tensor, nu: Tensor) -> Tensor:
    """Weight of the marginal entropy for rehearsals as uneven as that, where chance makes nu."""
    log_beta = math.log(_AT_BALANCE) - _FALL * uneven / nu
    return log_beta.exp_().clamp_(min=_LEAST)


def evidence_in_words(seen: str, uneven: float, nu: float) -> str:
    """What rehearsals showed, as a sentence; ``seen`` says from what."""
    may_be = nu * math.log(_AT_BALANCE / EVEN) / _FALL
    return (
        f"Rehearsals came out {uneven:.1%} uneven (0% is equal classes, 100% a single one); "
        f"{seen} {may_be:.1%} may be chance."
    )


def in_words(seen: str, uneven: float, nu: float, beta: float) -> str:
    """Evidence and decision as sentences."""
    if beta >= EVEN:
        judgement = "equally frequent classes are expected"
    elif beta >= _SOMEWHAT_EVEN:
        judgement = "equally frequent classes are expected with reserve"
    elif beta > _LEAST:
        judgement = "equally frequent classes are hardly expected"
    else:
        judgement = "how frequent classes are is left to the queries"
    evidence = evidence_in_words(seen, uneven, nu)
    return f"{evidence} So {judgement} (balance weight {beta:.2f}; 1 is TIM's)."


def evenly_spaced(n: int, n_wanted: int) -> Tensor:
    """Numbers below ``n``, at most as many as wanted, in order."""
    n_wanted = min(n, n_wanted)
    return torch.arange(n_wanted) * n // n_wanted


def _uneven(shares: Tensor) -> Tensor:
    """One minus the entropy of class shares over its largest value."""
    entropy: Tensor = torch.special.entr(shares).sum(-1)
    return 1 - entropy / math.log(shares.shape[-1])
