r"""How TIM-auto combines three classifications of the queries, steps 5 and 6 of its module.

The solve, the class means of the examples and the labels that spread over a graph of neighbours
make different errors. Their log-probabilities are added with weights,

.. math:: \ell_{ki} = \frac{\ell^{TIM}_{ki} + \lambda \, (2 \, \ell^{means}_{ki}
          + 4 \, \ell^{graph}_{ki})}{1 + 3 \lambda}, \qquad
          \lambda = \left(u \, e^{1 - u}\right)^3, \quad u = \frac{D}{0.19 \, \nu},

where :math:`D / \nu` is the estimated class imbalance relative to chance, see ``balance.py``. The
other two count most, :math:`\lambda = 1`, where the trial solves leave open whether the classes
are balanced. Where they are clearly balanced or extremely imbalanced the solve decides.

A query has a share in the weights of its own class, which makes it look nearer than a new sample
would be. In a mean without its share s its distance is 1 / (1 - s) as large, so

.. math:: \ell^{TIM}_{ki} = -\frac{\tau}{2} \frac{\|z_i - w_k\|^2}{(1 - s_{ki})^2}, \qquad
          s_{ki} = p_{ki} \min\left(
          \frac{K}{|Q| \, (1 + \frac{\lambda_{CE}}{1 + \alpha})}, 0.1\right),

with the posterior p of the solve, and as many queries in every class: with a share that depends on
the number of queries of the class, labels of rare classes would change. So they would with the
large shares of very few queries, hence the bound.

Probabilities are the softmax of :math:`c \, \ell`. How sharp they should be depends on how well the
features separate the classes, which shows in the mean confidences m of the class means and g of the
graph:

.. math:: c = 0.7 \left(\frac{m}{1 - m}\right)^{0.17} \left(\frac{g}{1 - g}\right)^{0.11}
          \beta^{0.08}, \qquad m = \frac{1}{|Q|} \sum_i \max_k p^{means}_{ik},

g likewise, both at most 0.99. Here :math:`\beta` is the weight that was chosen. New samples are
classified by the class weights of the solve alone, at c times its temperature. All constants were
chosen on half of the validation classes of mini-ImageNet and CUB, with two encoders, on plain and
on whitened features, see ``docs/tim-auto.md``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch
from infoshot.solvers.graph_evidence import spread_labels_over_queries
from infoshot.solvers.neighbours import Nearest
from infoshot.solvers.objective import class_logits

MEANS_TEMPERATURE = 100.0  # calibrated for shrunken class means, for any number of examples
CALIBRATED = 10.5  # temperature at which probabilities are calibrated
MEANS_WEIGHT, GRAPH_WEIGHT = 2.0, 4.0
_AMBIGUOUS, _POWER = 0.19, 3  # D / nu at which the others count most, and how fast this ends
_SHARE_OF_OTHERS = 3.0
_LARGEST_SHARE = 0.1  # of a query in the weights of its class
_SHARPNESS, _OF_MEANS, _OF_GRAPH, _OF_BALANCE = 0.7, 0.17, 0.11, 0.08
_MOST_CONFIDENT = 0.99


@dataclass(frozen=True, eq=False)
class Others:
    """What the class means and the graph say.

    Parameters
    ----------
    others
        The sum of their weighted log-probabilities, shape ``(task, class, query)``.
    scale
        Factor on the sum of all three, shape ``(task,)``.
    sharpness
        Factor on the solve alone (c), shape ``(task,)``.
    """

    others: Tensor
    scale: Tensor
    sharpness: Tensor


def ask_others(
    task: TaskBatch,
    near: Nearest,
    means: Tensor,
    settings: tuple[float, float, float],
    ambiguity: Tensor,
    beta: Tensor,
) -> Others:
    """Classify the queries by the class means, and by the graph of their nearest queries.

    Parameters
    ----------
    task
        The tasks.
    near
        The nearest other queries of each query.
    means
        Shrunken class means, shape ``(task, class, dim)``.
    settings
        Weights of the log-probabilities of the class means and of those of the graph, temperature.
    ambiguity
        What :func:`weigh_others` returns.
    beta
        The weight of the marginal entropy, shape ``(task,)``.
    """
    means_weight, graph_weight, temperature = settings
    of_means = classify_by_means(task.z_qry, means)
    of_graph = spread_labels_over_queries(task, near)
    sharpness = choose_sharpness(of_means, of_graph, beta, temperature)
    both = of_means.mul_(means_weight).add_(of_graph, alpha=graph_weight)
    return Others(
        both.mul_(ambiguity.view(-1, 1, 1)),
        sharpness / (1 + _SHARE_OF_OTHERS * ambiguity),
        sharpness,
    )


def weigh_others(imbalance: Tensor, chance: Tensor) -> Tensor:
    """How much the class means and the graph count, between 0 and 1, shape ``(task,)``."""
    u = imbalance / (_AMBIGUOUS * chance)
    return (u * (1 - u).exp()) ** _POWER


def classify_without_own_share(z: Tensor, w: Tensor, tau: float, share: float) -> Tensor:
    """Logits of the queries by the class weights of a solve, each without its own share in them.

    Parameters
    ----------
    z
        The queries, shape ``(task, query, dim)``.
    w
        Class weights, shape ``(task, class, dim)``.
    tau
        Factor on the squared distance.
    share
        Share of a query in the weights of a class that it surely belongs to; 0.1 if it is more.

    Returns
    -------
    Shape ``(task, class, query)``.
    """
    logits = class_logits(z, w, tau)
    rest = torch.softmax(logits, dim=1).mul_(-min(share, _LARGEST_SHARE)).add_(1)
    square = torch.linalg.vecdot(z, z).unsqueeze(1)
    negative_distance = logits.sub_(square, alpha=tau / 2).clamp_(max=0)
    return negative_distance.div_(rest).div_(rest)


def classify_by_means(z: Tensor, means: Tensor) -> Tensor:
    """Log-probabilities of shrunken class means, shape ``(task, class, n)``."""
    return torch.log_softmax(class_logits(z, means, MEANS_TEMPERATURE), dim=1)


def choose_sharpness(
    of_means: Tensor, of_graph: Tensor, beta: Tensor, temperature: float
) -> Tensor:
    """Return c, from the log-probabilities of the class means and of the graph, ``(task,)``."""
    separation = _odds(of_means) ** _OF_MEANS * _odds(of_graph) ** _OF_GRAPH
    return temperature / CALIBRATED * _SHARPNESS * separation * beta**_OF_BALANCE


def _odds(log_p: Tensor) -> Tensor:
    """Odds of the mean confidence over the queries, shape ``(task,)``."""
    confidence = log_p.amax(1).exp().mean(1).clamp_(max=_MOST_CONFIDENT)
    return confidence / (1 - confidence)
