r"""Linear classifiers that solve a convex problem on the support: batched and differentiable.

Both return class weights without bias, and gradients flow from them to the features. They need
single or double precision, so call them outside ``torch.autocast``.

*Ridge regression* on one-hot labels, in closed form:

.. math:: \min_w \sum_{ik} (w_k^\top z_i - y_{ik})^2 + \lambda \sum_k \|w_k\|^2, \qquad
          w = Y^\top (G + \lambda I)^{-1} Z, \quad G = Z Z^\top

*Support vector machine* of Crammer and Singer:

.. math:: \min_w \tfrac12 \sum_k \|w_k\|^2 + C \sum_i \xi_i, \qquad
          \xi_i = \max_k \, (w_k^\top z_i + 1 - y_{ik}) - w_{y_i}^\top z_i

Its dual has one coefficient per class and sample, :math:`w_k = \sum_i \alpha_{ki} z_i`:

.. math:: \min_\alpha \tfrac12 \sum_k \alpha_k G \alpha_k^\top - \sum_i \alpha_{y_i i}, \qquad
          \beta = C Y - \alpha \ge 0, \quad \sum_k \beta_{ki} = C

so the coefficients of a sample form a point :math:`\beta_i` of a simplex. Accelerated projected
gradient with restarts finds it. If a gradient is asked for, the coefficients that are not at their
bounds are computed once more from the linear equations that hold at the solution,
:math:`(\alpha G)_{ki} + \nu_i = y_{ki}` and :math:`\sum_k \alpha_{ki} = 0`. Differentiating these
equations gives the gradient of the solution. A proximal term, which is zero at the solution, makes
them solvable for samples that depend on each other linearly.

Cost: ridge 2 S S d + S S S / 3 operations; the machine 2 S S d and 2 K S S per iteration, about
50 to 600 of them, and with a gradient a linear system of (K + 1) S unknowns.

References: K. Lee, S. Maji, A. Ravichandran, S. Soatto. Meta-Learning with Differentiable Convex
Optimization. CVPR 2019. L. Bertinetto, J. Henriques, P. Torr, A. Vedaldi. Meta-learning with
differentiable closed-form solvers. ICLR 2019. K. Crammer, Y. Singer. On the Algorithmic
Implementation of Multiclass Kernel-based Vector Machines. JMLR 2001. B. O'Donoghue, E. Candès.
Adaptive Restart for Accelerated Gradient Schemes. 2015.
"""

import torch
from torch import Tensor

from infoshot.solvers.objective import class_rows

_MOST_ITERATIONS = 2000
_CHECKED_EVERY = 10


def ridge_weights(
    z_sup: Tensor, y_sup: Tensor, n_way: int, regularization: float | Tensor
) -> Tensor:
    """Weights of ridge regression on one-hot labels; differentiable.

    Parameters
    ----------
    z_sup
        Features, shape ``(task, support, dim)``.
    y_sup
        Labels from 0 to ``n_way - 1``, shape ``(task, support)``.
    n_way
        Number of classes.
    regularization
        Weight of the squared lengths, above 0; a tensor if it is learned.

    Returns
    -------
    Shape ``(task, class, dim)``.

    Examples
    --------
    >>> ridge_weights(torch.eye(2).unsqueeze(0), torch.tensor([[0, 1]]), 2, 1.0)
    tensor([[[0.5000, 0.0000],
             [0.0000, 0.5000]]])
    """
    y = class_rows(y_sup, n_way, z_sup.dtype)
    factor = ridge_factor(torch.bmm(z_sup, z_sup.mT), regularization)
    return torch.bmm(torch.cholesky_solve(y.mT, factor).mT, z_sup)


def ridge_factor(gram: Tensor, regularization: float | Tensor) -> Tensor:
    r"""Cholesky factor of :math:`G + \lambda I`, shape ``(task, n, n)``.

    Its rounding error is added to the diagonal, so that very long features have a factor too.
    """
    trace = gram.diagonal(dim1=1, dim2=2).sum(-1)
    added = regularization + torch.finfo(gram.dtype).eps * trace.detach()
    identity = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    factor: Tensor = torch.linalg.cholesky(gram + added.view(-1, 1, 1) * identity)
    return factor


def svm_weights(z_sup: Tensor, y_sup: Tensor, n_way: int, cost: float) -> Tensor:
    """Weights of the multi-class support vector machine; differentiable.

    Parameters
    ----------
    z_sup
        Features, shape ``(task, support, dim)``.
    y_sup
        Labels from 0 to ``n_way - 1``, shape ``(task, support)``.
    n_way
        Number of classes.
    cost
        Weight C of the margin violations, above 0.

    Returns
    -------
    Shape ``(task, class, dim)``.

    Examples
    --------
    >>> svm_weights(torch.eye(2).unsqueeze(0), torch.tensor([[0, 1]]), 2, 10.0)
    tensor([[[ 0.5000, -0.5000],
             [-0.5000,  0.5000]]])
    """
    gram = torch.bmm(z_sup, z_sup.mT)
    y = class_rows(y_sup, n_way, z_sup.dtype)
    with torch.no_grad():
        beta = _minimise(gram, y, cost)
    alpha = cost * y - beta
    if gram.requires_grad:
        alpha = _solve_equations(gram, y, alpha, free=beta > 0)
    return torch.bmm(alpha, z_sup)


def _minimise(gram: Tensor, y: Tensor, cost: float) -> Tensor:
    """Accelerated projected gradient on the dual; returns beta, ``(task, class, support)``."""
    # The largest sum of a row bounds the largest eigenvalue.
    rate = gram.abs().sum(-1).amax(-1).clamp_(min=torch.finfo(gram.dtype).tiny).reciprocal_()
    rate, target = rate.view(-1, 1, 1), cost * y
    beta = onto_simplex(torch.zeros_like(y), cost)
    ahead, inertia = beta, torch.ones_like(rate)
    small = torch.finfo(gram.dtype).eps ** 0.75 * cost
    for number in range(1, _MOST_ITERATIONS + 1):
        gradient = y - torch.bmm(target - ahead, gram)
        new = onto_simplex(ahead - rate * gradient, cost)
        change = new - beta
        uphill = ((ahead - new) * change).sum((1, 2), keepdim=True) > 0
        inertia = torch.where(uphill, 1.0, inertia)
        following = (1 + (1 + 4 * inertia * inertia).sqrt()) / 2
        ahead = new + (inertia - 1) / following * change
        beta, inertia = new, following
        if number % _CHECKED_EVERY == 0 and change.abs().amax() <= small:
            break
    return beta


def onto_simplex(x: Tensor, total: float) -> Tensor:
    """Nearest point whose entries along axis 1 are not negative and sum to ``total``.

    Examples
    --------
    >>> onto_simplex(torch.tensor([[[0.9], [0.5], [-1.0]]]), 1.0).flatten()
    tensor([0.7000, 0.3000, 0.0000])
    """
    largest = x.sort(dim=1, descending=True).values
    surplus = largest.cumsum(1) - total
    counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype).view(1, -1, 1)
    n_positive = (largest * counts > surplus).sum(1, keepdim=True).clamp_(min=1)
    shift = surplus.gather(1, n_positive - 1) / n_positive
    return (x - shift).clamp_(min=0)


def _solve_equations(gram: Tensor, y: Tensor, alpha: Tensor, free: Tensor) -> Tensor:
    """Coefficients as a differentiable function of the Gram matrix, ``(task, class, support)``.

    ``alpha`` is the solution; its entries that are not ``free`` keep their values.
    """
    n_tasks, n_way, n_sup = y.shape
    per_class, per_sample, each = (
        torch.eye(n, dtype=y.dtype, device=y.device) for n in (n_way, n_sup, n_way * n_sup)
    )
    near = torch.finfo(y.dtype).eps ** 0.6 * gram.detach().diagonal(dim1=1, dim2=2).mean(-1)
    near = near.view(-1, 1, 1)
    is_free = free.flatten(1).unsqueeze(-1)
    blocks = torch.einsum("kl,tij->tkilj", per_class, gram).reshape(-1, *each.shape)
    sums = per_sample.repeat(1, n_way)  # over the classes of each sample
    stationary = torch.cat((blocks + near * each, sums.mT.expand(n_tasks, -1, -1)), dim=2)
    fixed = torch.cat((each, torch.zeros_like(sums.mT)), dim=1)
    balanced = torch.cat((sums, torch.zeros_like(per_sample)), dim=1).expand(n_tasks, -1, -1)
    system = torch.cat((torch.where(is_free, stationary, fixed), balanced), dim=1)
    right = torch.where(free, y + near * alpha, alpha).flatten(1)
    solved: Tensor = torch.linalg.solve(
        system, torch.cat((right, y.new_zeros(n_tasks, n_sup)), dim=1)
    )
    return solved[:, : len(each)].view(n_tasks, n_way, n_sup)
