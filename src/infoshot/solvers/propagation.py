r"""Labels that spread over a graph of nearest neighbours until they reach an equilibrium.

.. math:: B = D^{-1/2} A D^{-1/2}, \qquad F = (I - a B)^{-1} Y

Each row of the similarities A keeps its largest entries, and A is then symmetrised by the maximum;
D holds its row sums, Y the labels, with zeros for samples without one. F is the fixed point of
:math:`F \leftarrow a B F + Y`. Gradients pass through both functions.

Numerics: degrees are divided out in log space, so a sample far from all others keeps its edges.
I - a B has no positive entry off its diagonal, hence Cholesky's method only adds numbers of one
sign: F is not negative, and exactly 0 where no label arrives.

Cost for N samples: 2 N N d operations for the similarities, N N N / 3 for the linear system.
"""

import math

import torch
from torch import Tensor

from infoshot.solvers.objective import class_rows


def neighbour_graph(
    z: Tensor, temperature: float, n_neighbours: int, *, loops: bool = False
) -> Tensor:
    r"""Return B for similarities :math:`\exp(-\frac{\tau}{2} \|z_i - z_j\|^2)`.

    Parameters
    ----------
    z
        Samples, shape ``(task, sample, dim)``.
    temperature
        Factor on half the squared distance; larger is sharper.
    n_neighbours
        Number of edges that each sample keeps; edges that its neighbours keep are added.
    loops
        Whether a sample has an edge to itself, which is then one of those that it keeps.

    Returns
    -------
    Shape ``(task, sample, sample)``.

    Examples
    --------
    >>> neighbour_graph(torch.tensor([[[0.0], [1.0], [5.0]]]), 1.0, n_neighbours=1)
    tensor([[[0.0000, 0.9997, 0.0000],
             [0.9997, 0.0000, 0.0235],
             [0.0000, 0.0235, 0.0000]]])
    """
    log_a = torch.bmm(z, z.mT)
    half_norm = log_a.diagonal(dim1=1, dim2=2).mul(0.5)
    log_a.sub_(half_norm.unsqueeze(1)).sub_(half_norm.unsqueeze(2)).mul_(temperature)
    log_a.clamp_(max=0.0).diagonal(dim1=1, dim2=2).fill_(0.0 if loops else -math.inf)
    kept = log_a.topk(min(n_neighbours, z.shape[1] - (not loops)), sorted=False)
    log_a.fill_(-math.inf).scatter_(2, kept.indices, kept.values)
    log_a = torch.maximum(log_a, log_a.mT)
    half_degree = torch.logsumexp(log_a, dim=2).mul(0.5)
    log_a = log_a - half_degree.unsqueeze(1)
    return log_a.sub_(half_degree.unsqueeze(2)).exp_()


def spread_labels(graph: Tensor, y: Tensor, n_way: int, propagation: float) -> Tensor:
    """Return F for samples of which the first ones have labels.

    Parameters
    ----------
    graph
        B, shape ``(task, sample, sample)``.
    y
        Labels of the first samples, shape ``(task, labelled)``.
    n_way
        Number of classes.
    propagation
        Weight of the neighbours in the label of a sample (a), below 1.

    Returns
    -------
    Shape ``(task, sample, class)``.

    Examples
    --------
    >>> graph = neighbour_graph(torch.tensor([[[0.0], [4.0], [1.0]]]), 1.0, n_neighbours=2)
    >>> spread_labels(graph, torch.tensor([[0, 1]]), n_way=2, propagation=0.5)[:, 2]
    tensor([[0.6605, 0.0894]])
    """
    labels = graph.new_zeros(*graph.shape[:2], n_way)
    labels[:, : y.shape[1]] = class_rows(y, n_way, graph.dtype).mT
    graph = graph.mul(-propagation)
    graph.diagonal(dim1=1, dim2=2).add_(1.0)
    return torch.cholesky_solve(labels, torch.linalg.cholesky_ex(graph).L)
