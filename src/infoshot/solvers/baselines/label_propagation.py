r"""Label propagation: labels spread over the nearest-neighbour graph of all samples.

Labels spread from the support along the edges of a graph until they reach an equilibrium, which a
linear system gives directly. Only similarities between samples are used, no class means.

.. math:: A_{ij} = \exp\left(-\frac{\tau}{2} \|z_i - z_j\|^2\right), \quad A_{ii} = 0, \qquad
          B = D^{-1/2} A D^{-1/2}, \qquad F = (I - a B)^{-1} Y, \qquad
          p_{ik} = \frac{F_{ik}}{\sum_l F_{il}}

on support and queries together. Each row of A keeps its largest entries, and A is then symmetrised
by the maximum; D holds its row sums, Y the labels of the support and zeros for queries. F is the
fixed point of :math:`F \leftarrow a B F + Y` and minimises
:math:`\frac12 \sum_{ij} A_{ij} \|F_i / \sqrt{D_i} - F_j / \sqrt{D_j}\|^2
+ (\frac{1}{a} - 1) \sum_i \|F_i - \frac{1}{1-a} Y_i\|^2`.

Cost for N = \|S\| + \|Q\|: 2 N N d operations for the graph, N N N / 3 for the linear system. When
to prefer it: where classes are clusters of any shape; it assumes nothing about their frequencies. A
query without a path to a labelled sample is not classified: all its probabilities are equal, its
outlier score is 1, and a note and a warning report it.

Numerics: as in ``propagation.py``; F is exactly 0 where no label arrives. A label that underflows,
as with features of length 1e6, is reported in the same way.

The published settings, 20 neighbours and a = 0.99, are for graphs with trained widths. On plain
features they spread the labels over everything, F approaches the square roots of the degrees, and
one class takes most queries (37 % accuracy where our settings give 75 %, five shots). The defaults
were chosen on the validation classes of mini-ImageNet.

References: D. Zhou, O. Bousquet, T. N. Lal, J. Weston, B. Schölkopf. Learning with Local and Global
Consistency. NIPS 2003. Y. Liu, J. Lee, M. Park, S. Kim, E. Yang, S. J. Hwang, Y. Yang. Learning to
Propagate Labels: Transductive Propagation Network for Few-shot Learning. ICLR 2019.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import IsolatedWarning
from infoshot.core.types import TaskBatch
from infoshot.solvers.objective import class_means
from infoshot.solvers.propagation import neighbour_graph, spread_labels
from infoshot.solvers.solver import Rule, Solver, State


@dataclass(eq=False)
class _PropagationState(State):
    weights: Tensor  # [task, class, dim]
    log_p: Tensor  # [task, class, query]
    isolated: Tensor  # whether no label reaches a query, [task, query]


@final
@dataclass(frozen=True, kw_only=True)
class LabelPropagation(Solver[_PropagationState]):
    """Labels spread over the graph of nearest neighbours.

    Parameters
    ----------
    n_neighbours
        Number of edges that each sample keeps; edges that its neighbours keep are added.
    propagation
        Weight of the neighbours in the label of a sample (a), below 1.
    temperature
        Factor on half the squared distance in the weight of an edge; larger is sharper.

    Examples
    --------
    >>> from infoshot import TaskBatch, solve
    >>> z_sup = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> z_qry = torch.tensor([[[0.9, 0.1], [0.7, 0.3], [0.1, 0.9], [0.2, 0.8]]])
    >>> tasks = TaskBatch(z_sup, torch.tensor([[0, 1]]), z_qry, n_way=2)
    >>> solve(LabelPropagation(), tasks).probabilities.argmax(-1)
    tensor([[0, 0, 1, 1]])
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **Solver.rules,
        "n_neighbours": partial(checks.at_least, least=1),
        "propagation": checks.below_one,
    }

    n_neighbours: int = 10
    propagation: float = 0.8
    temperature: float = 20.0

    def init(self, task: TaskBatch) -> _PropagationState:
        """Build the graph and solve for the labels."""
        z = torch.cat((task.z_sup, task.z_qry), dim=1)
        graph = neighbour_graph(z, self.temperature, self.n_neighbours)
        spread = spread_labels(graph, task.y_sup, task.n_way, self.propagation)
        arrived = spread[:, task.n_sup :].mT.contiguous()
        total = arrived.sum(1, keepdim=True)
        log_p = arrived.log_().sub_(total.log())
        isolated = total == 0
        if isolated.any():
            log_p.masked_fill_(isolated, -math.log(task.n_way))
            _warn(isolated.squeeze(1))
        return _PropagationState(
            weights=class_means(task.z_sup, task.y_sup, task.n_way),
            log_p=log_p,
            isolated=isolated.squeeze(1),
        )

    def log_posterior(self, task: TaskBatch, state: _PropagationState) -> Tensor:
        """Log-probabilities of the queries, shape ``(task, query, class)``."""
        return state.log_p.mT

    def prototypes(self, task: TaskBatch, state: _PropagationState) -> Tensor:
        """Class means, shape ``(task, class, dim)``; the graph does not use them."""
        return state.weights

    def outlier_scores(self, task: TaskBatch, state: _PropagationState) -> Tensor:
        """One minus the largest probability; 1 for a query that no label reaches."""
        return state.log_p.amax(1).expm1().neg_().masked_fill_(state.isolated, 1.0)

    def notes(self, task: TaskBatch, state: _PropagationState) -> tuple[str, ...]:
        """Say for each task how many queries no label reaches."""
        return tuple(
            f"{n} of {task.n_qry} queries are not connected to any labelled sample." if n else ""
            for n in state.isolated.sum(-1).tolist()
        )

    def working_set(self, task: TaskBatch) -> int:
        """Count the features, and a few matrices over all pairs of samples."""
        n = task.n_sup + task.n_qry
        return n * task.dim + 3 * n * n


def _warn(isolated: Tensor) -> None:
    """Warn that some queries have no path to a labelled sample."""
    warnings.warn(
        f"{int(isolated.sum())} queries of {int(isolated.any(1).sum())} tasks are not connected to "
        "any labelled sample: all their probabilities are equal and their outlier scores are 1. "
        "Raise n_neighbours or lower temperature to connect them.",
        IsolatedWarning,
        stacklevel=2,
    )
