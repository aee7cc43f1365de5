r"""Labels of the examples that spread over a graph of near queries: evidence on every query.

Every sample, labelled or not, has edges to its k nearest queries, of weight
:math:`B_{ij} = \exp(-\frac{\tau}{2} \|z_i - z_j\|^2)`. Labels spread along the edges, in both
directions:

.. math:: A = \tfrac12 (B + B^\top), \qquad F = \sum_{t=0}^{15} (a D^{-1/2} A D^{-1/2})^t\, Y,
          \qquad p_{ik} = F_{ik} / \sum_l F_{il}

with D the row sums of A and :math:`Y_{ik} = y_{ik} / n_k`, zero for queries, so that classes with
more examples have no more labels to spread. It is label propagation
(``baselines/label_propagation.py``), truncated after paths of 15 edges. Examples have no edges to
each other: an example that is near many queries does not spread more than one that is near few,
because its degree is divided out.

It does not use the class means, and it does not depend on the class frequencies: its errors are not
those of methods that fit centres to the queries.

Cost: 2 \|S\| \|Q\| d operations for the neighbours of the examples, and 15 passes over the edges,
60 k (\|S\| + \|Q\|) K operations.

Reference: D. Zhou, O. Bousquet, T. Lal, J. Weston, B. Schölkopf. Learning with Local and Global
Consistency. NIPS 2003.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from infoshot.core.types import TaskBatch
from infoshot.solvers.neighbours import TEMPERATURE, Nearest, find_nearest
from infoshot.solvers.objective import class_rows

_PROPAGATION, _STEPS = 0.9, 15  # a, and the longest path
_FARTHEST = 60.0  # exponents of edges end here, so that no edge becomes zero
_LEAST = math.exp(-8)  # probability of a class that no label of reaches


def spread_labels_over_queries(task: TaskBatch, near: Nearest) -> Tensor:
    """Return log-probabilities of the queries, shape ``(task, class, query)``.

    Parameters
    ----------
    task
        The tasks.
    near
        The nearest other queries of each query.

    Returns
    -------
    Not normalised: probabilities below exp(-8) are exp(-8). A query that no label reaches has the
    same probability for all classes.
    """
    n_tasks, n_sup, n = len(task), task.n_sup, task.n_sup + task.n_qry
    of_sup = find_nearest(task.z_sup, task.z_qry, near.numbers.shape[2])
    z = torch.cat((task.z_sup, task.z_qry), dim=1)
    nearness = torch.cat((of_sup.nearness, near.nearness), dim=1)
    log_b = (nearness - torch.linalg.vecdot(z, z).mul_(0.5).unsqueeze(2)).mul_(TEMPERATURE)
    graph = _Graph(torch.cat((of_sup.numbers, near.numbers), dim=1).add_(n_sup), log_b)
    y = class_rows(task.y_sup, task.n_way, z.dtype)
    labels = z.new_zeros(n_tasks, n, task.n_way)
    labels[:, :n_sup] = (y / y.sum(-1, keepdim=True)).mT
    labels = labels.flatten(0, 1)
    spread = labels
    for _ in range(_STEPS):
        spread = graph.pass_on(spread).mul_(_PROPAGATION).add_(labels)
    arrived = spread.view(n_tasks, n, task.n_way)[:, n_sup:].mT
    total = arrived.sum(1, keepdim=True)
    share = torch.where(total > 0, arrived / total, 1 / task.n_way)
    return share.clamp_(min=_LEAST).log_()


class _Graph:
    """The normalised edges of all tasks, sorted by the sample at which they end."""

    def __init__(self, numbers: Tensor, log_b: Tensor) -> None:
        n_tasks, n, _ = numbers.shape
        first = torch.arange(n_tasks, device=numbers.device).mul_(n).view(-1, 1, 1)
        ends = (numbers + first).flatten()
        starts = torch.arange(n_tasks * n, device=numbers.device)
        starts = starts.view(n_tasks, n, 1).expand_as(numbers).flatten()
        rows, columns = torch.cat((starts, ends)), torch.cat((ends, starts))
        order = rows.argsort(stable=True)
        rows, self.columns = rows[order], columns[order]
        count = torch.bincount(rows, minlength=n_tasks * n)
        self.offsets = count.cumsum(0) - count
        b = log_b.clamp(-_FARTHEST, 0.0).exp_().flatten()
        self.weights = torch.cat((b, b))[order]
        ones = self.weights.new_ones(n_tasks * n, 1)
        scale = self.pass_on(ones).rsqrt_().flatten()
        self.weights = self.weights * scale[rows] * scale[self.columns]

    def pass_on(self, values: Tensor) -> Tensor:
        """Sum the values of the neighbours of every sample, ``(sample, class)``."""
        return embedding_bag(
            self.columns, values, self.offsets, mode="sum", per_sample_weights=self.weights
        )
