r"""How TIM-auto combines three classifications of the queries, steps 5 and 6 of its module.

The solve, the class means of the examples and the labels that spread over a graph of neighbours
make different errors. Their log-probabilities are added with weights,

.. math:: \ell_{ki} = \frac{\ell^{TIM}_{ki} + \lambda \, (2.5 \, \ell^{means}_{ki}
          + 5 \, \ell^{graph}_{ki})}{1 + 3 \lambda}, \qquad
          \lambda = \left(u \, e^{1 - u}\right)^6, \quad u = \frac{D}{0.19 \, \nu},

where :math:`D / \nu` is the estimated class imbalance relative to chance, see ``balance.py``. The
other two count most, :math:`\lambda = 1`, where the trial solves leave open whether the classes
are balanced. Where they are clearly balanced or extremely imbalanced the solve decides.

Probabilities are the softmax of :math:`c \, \ell`. How sharp they should be depends on how well the
features separate the classes, which shows in the confidence of the class means:

.. math:: c = 0.6 \left(\frac{m}{1 - m}\right)^{0.23} \beta^{0.1}, \qquad
          m = \frac{1}{|Q|} \sum_i \max_k p^{means}_{ik},

with m at most 0.99. Here :math:`\beta` is the weight that was chosen. New samples are classified by
the class weights of the solve alone, at c times its temperature. All constants were chosen on half
of the validation classes of mini-ImageNet and CUB, with two encoders, see ``docs/tim-auto.md``.
"""

from torch import Tensor

MEANS_WEIGHT, GRAPH_WEIGHT = 2.5, 5.0
_AMBIGUOUS, _POWER = 0.19, 6  # D / nu at which the others count most, and how fast this ends
_SHARE_OF_OTHERS = 3.0
_SHARPNESS, _OF_ODDS, _OF_BALANCE = 0.6, 0.23, 0.1
_MOST_CONFIDENT = 0.99


def weigh_others(imbalance: Tensor, chance: Tensor) -> Tensor:
    """How much the class means and the graph count, between 0 and 1, shape ``(task,)``."""
    u = imbalance / (_AMBIGUOUS * chance)
    return (u * (1 - u).exp()) ** _POWER


def divide_by_weights(sharpness: Tensor, others: Tensor) -> Tensor:
    """Factor on the sum of all three, with what :func:`weigh_others` returns, ``(task,)``."""
    return sharpness / (1 + _SHARE_OF_OTHERS * others)


def choose_sharpness(means_log_p: Tensor, beta: Tensor) -> Tensor:
    """Return c, from the log-probabilities of the class means, ``(task, class, query)``."""
    confidence = means_log_p.amax(1).exp().mean(1).clamp_(max=_MOST_CONFIDENT)
    odds = confidence / (1 - confidence)
    return _SHARPNESS * odds**_OF_ODDS * beta**_OF_BALANCE
