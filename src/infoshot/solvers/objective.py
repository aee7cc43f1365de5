r"""The formulas of the TIM objective, in log space.

Log-probabilities have the shape ``(task, n, class)`` and log-sum to zero over the last axis; every
function returns one number per task. The tags in square brackets are those of ``docs/math.md``,
which gives the equation of each formula in the paper [Boudiaf2020]_.

.. [Boudiaf2020] M. Boudiaf, Z. I. Masud, J. Rony, J. Dolz, P. Piantanida, I. Ben Ayed.
   Transductive Information Maximization for Few-Shot Learning. NeurIPS 2020.
"""

import math

import torch
from torch import Tensor


def class_means(z: Tensor, y: Tensor, n_way: int) -> Tensor:
    r"""Mean feature of every class, where a solve starts, see [INIT].

    .. math:: w_k = \frac{\sum_{i \in S} y_{ik} z_i}{\sum_{i \in S} y_{ik}}

    Parameters
    ----------
    z
        Features, shape ``(task, n, dim)``.
    y
        Labels from 0 to ``n_way - 1``, shape ``(task, n)``; every class occurs.

    Returns
    -------
    Prototypes, shape ``(task, class, dim)``.
    """
    y_onehot = class_rows(y, n_way, z.dtype)
    return torch.bmm(y_onehot, z) / y_onehot.sum(-1, keepdim=True)


def class_rows(y: Tensor, n_way: int, dtype: torch.dtype) -> Tensor:
    """One-hot labels with classes as rows, shape ``(task, class, n)``."""
    classes = torch.arange(n_way, device=y.device).unsqueeze(-1)
    return (y.unsqueeze(1) == classes).to(dtype)


def class_counts(y: Tensor, n_way: int) -> Tensor:
    """Number of samples of each class, shape ``(task, class)``."""
    return torch.zeros(len(y), n_way, dtype=y.dtype, device=y.device).scatter_add_(
        1, y, torch.ones_like(y)
    )


def class_logits(z: Tensor, w: Tensor, tau: float) -> Tensor:
    r"""Scores of every sample with classes as rows, see [POSTERIOR].

    .. math:: \ell_{ki} = \tau (w_k^\top z_i - \tfrac12 \|w_k\|^2)

    which equals :math:`-\frac{\tau}{2}\|w_k - z_i\|^2` up to a constant over the classes. With
    classes as rows the softmax runs over many samples at once, which is an order of magnitude
    faster on a CPU than over rows of a few classes.

    Returns
    -------
    Shape ``(task, class, n)``.
    """
    norm = torch.linalg.vecdot(w, w).unsqueeze(-1)
    return torch.baddbmm(norm, w, z.mT, beta=-tau / 2, alpha=tau)


def class_cosines(z: Tensor, w: Tensor) -> Tensor:
    r"""Cosines of samples and class weights with classes as rows.

    .. math:: c_{ki} = \frac{w_k^\top z_i}{\|w_k\| \|z_i\|}

    A vector of length zero has no direction; its cosines are 0.

    Parameters
    ----------
    z
        Features, shape ``(task, n, dim)``.
    w
        Prototypes, shape ``(task, class, dim)``.

    Returns
    -------
    Shape ``(task, class, n)``.

    Examples
    --------
    >>> z, w = torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]), torch.tensor([[[2.0, 0.0], [0.0, 0.5]]])
    >>> class_cosines(z, w)
    tensor([[[0.6000, 0.0000],
             [0.8000, 0.0000]]])
    """
    unit = w * inverse_lengths(w).unsqueeze(-1)
    return torch.bmm(unit, z.mT).mul_(inverse_lengths(z).unsqueeze(1))


def inverse_lengths(z: Tensor) -> Tensor:
    """One over the length of every vector along the last axis; 0 for a vector of length zero.

    A vector of length zero also has the gradient 0.
    """
    length: Tensor = torch.linalg.vector_norm(z, dim=-1)
    return length.masked_fill(length == 0, torch.inf).reciprocal()


def log_posterior(z: Tensor, w: Tensor, tau: float) -> Tensor:
    r"""Log-probability of every class for every sample, see [POSTERIOR].

    .. math:: p_{ik} \propto \exp\left(-\frac{\tau}{2}\|w_k - z_i\|^2\right)

    Parameters
    ----------
    z
        Features, shape ``(task, n, dim)``.
    w
        Prototypes, shape ``(task, class, dim)``.
    tau
        Temperature; larger is sharper.

    Returns
    -------
    Shape ``(task, n, class)``.

    Examples
    --------
    >>> z, w = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> log_posterior(z, w, tau=1.0).exp()
    tensor([[[0.7311, 0.2689]]])
    """
    return torch.log_softmax(class_logits(z, w, tau), dim=1).mT


def support_cross_entropy(log_p_sup: Tensor, y_sup: Tensor) -> Tensor:
    r"""Cross-entropy of the labelled samples, see [CE].

    .. math:: -\frac{1}{|S|} \sum_{i \in S} \sum_k y_{ik} \log p_{ik}
    """
    return -log_p_sup.gather(-1, y_sup.unsqueeze(-1)).mean((-2, -1))


def marginal_entropy(log_p: Tensor) -> Tensor:
    r"""Entropy of the mean prediction, H(Y), see [MI].

    .. math:: -\sum_k \hat p_k \log \hat p_k, \qquad \hat p_k = \frac{1}{|Q|} \sum_{i \in Q} p_{ik}

    Examples
    --------
    >>> marginal_entropy(torch.log_softmax(torch.zeros(1, 3, 2), -1))
    tensor([0.6931])
    """
    return _entropy(log_marginal(log_p))


def conditional_entropy(log_p: Tensor) -> Tensor:
    r"""Mean entropy of the predictions, H(Y|X), see [MI].

    .. math:: -\frac{1}{|Q|} \sum_{i \in Q} \sum_k p_{ik} \log p_{ik}

    Examples
    --------
    >>> conditional_entropy(torch.log_softmax(torch.zeros(1, 3, 2), -1))
    tensor([0.6931])
    """
    return _entropy(log_p).mean(-1)


def weighted_mutual_information(log_p: Tensor, beta: float, alpha: float) -> Tensor:
    r"""Marginal minus conditional entropy, weighted, see [MI].

    .. math:: \beta \hat H(Y_Q) - \alpha \hat H(Y_Q | X_Q)

    The paper has beta = 1; alpha = beta = 1 is the mutual information.
    """
    return beta * marginal_entropy(log_p) - alpha * conditional_entropy(log_p)


def tim_loss(
    log_p_sup: Tensor,
    y_sup: Tensor,
    log_p_qry: Tensor,
    *,
    lam: float,
    beta: float,
    alpha: float,
    log_prior: Tensor | None = None,
) -> Tensor:
    r"""The objective of TIM, to be minimised, see [TIM].

    .. math:: \lambda \, CE - \beta \hat H(Y_Q) + \alpha \hat H(Y_Q | X_Q)

    With a class prior the KL divergence from the prior replaces the negative marginal entropy; for
    a uniform prior the two differ by the constant log K:

    .. math:: \sum_k \hat p_k \log \frac{\hat p_k}{\pi_k}
    """
    loss = lam * support_cross_entropy(log_p_sup, y_sup)
    loss = loss - weighted_mutual_information(log_p_qry, beta, alpha)
    return loss if log_prior is None else loss + beta * _prior_cost(log_p_qry, log_prior)


def adm_loss(
    log_p_sup: Tensor,
    y_sup: Tensor,
    log_p_qry: Tensor,
    log_q: Tensor,
    *,
    lam: float,
    beta: float,
    alpha: float,
    log_prior: Tensor | None = None,
) -> Tensor:
    r"""The objective of TIM-ADM over weights and assignments q, to be minimised, see [ADM].

    .. math::
        \lambda \, CE + \beta \sum_k \hat q_k \log \hat q_k
        - \frac{\alpha}{|Q|} \sum_{i \in Q} \sum_k q_{ik} \log p_{ik}
        + \frac{1}{|Q|} \sum_{i \in Q} \sum_k q_{ik} \log \frac{q_{ik}}{p_{ik}}

    It equals :func:`tim_loss` where q = p.
    """
    q = log_q.exp()
    assigned = -(q * log_p_qry).sum(-1).mean(-1)
    penalty = assigned - conditional_entropy(log_q)
    loss = lam * support_cross_entropy(log_p_sup, y_sup) - beta * marginal_entropy(log_q)
    loss = loss + alpha * assigned + penalty
    return loss if log_prior is None else loss + beta * _prior_cost(log_q, log_prior)


def log_marginal(log_p: Tensor) -> Tensor:
    """Logarithm of the mean prediction over the samples, shape ``(task, class)``."""
    return torch.logsumexp(log_p, dim=-2) - math.log(log_p.shape[-2])


def _entropy(log_p: Tensor) -> Tensor:
    """Entropy over the last axis; classes of probability zero contribute zero."""
    return -torch.where(log_p.isneginf(), 0.0, log_p.exp() * log_p).sum(-1)


def _prior_cost(log_p: Tensor, log_prior: Tensor) -> Tensor:
    """Cross-entropy of the mean prediction and the prior; absent classes contribute zero."""
    mean = log_marginal(log_p).exp()
    return -torch.where(mean > 0, mean * log_prior, 0.0).sum(-1)
