r"""The two passes of sharded TIM-ADM over one chunk of rows, see ``sharded_adm.py``.

Exponentials use base 2, which scales the temperature by log2(e); the maximum of a row is subtracted
first. Rows need no second maximum for q: its numerators
:math:`(e_{ik} / \max_j e_{ij})^{1+\alpha} s_k^{-b}` with :math:`b = \beta / (1 + \beta)` are at
most :math:`K^{1+\alpha} \max(1, s_k)^{1-b}`, the largest of a row is at least
:math:`|Q|^{-b}`, and both are well within float32.

Rows come with their scales s, see ``row_preparation.py``. As T is symmetric, a product of a class
weight with :math:`z' = s \, T (z - \mu)` is :math:`s \left((T w)^T z - (T w)^T \mu\right)`, and a
sum :math:`\sum_i a_i z'_i` is T times :math:`\sum_i a_i s_i (z_i - \mu)`. So a pass needs
:math:`T w`, which :class:`Classifier` holds, and the caller applies T to its sums.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.solvers.sharded.row_preparation import RowWhitening

DTYPE = torch.float32  # dtype of the class weights
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True, eq=False)
class Classifier:
    """Class weights for a pass: on its device, scaled for base 2, for rows as they are.

    ``offset`` holds their products with the ``mean`` that rows are centred by.
    """

    weights: Tensor  # [class, dim]
    bias: Tensor  # [class], float32
    offset: Tensor  # [class], float32
    mean: Tensor | None  # [dim], float32

    @classmethod
    def of(
        cls,
        w: Tensor,
        temperature: float,
        device: str,
        *,
        dtype: torch.dtype = DTYPE,
        whitening: RowWhitening | None = None,
    ) -> "Classifier":
        """Make it from float64 weights, ``(class, dim)``; ``dtype`` is that of the rows."""
        scale = temperature * _LOG2_E
        bias = torch.linalg.vecdot(w, w) * (-scale / 2)
        weights = (w if whitening is None else whitening.shorten(w)).mul(scale).to(dtype)
        mean, offset = None, torch.zeros_like(bias)
        if whitening is not None:
            # With rounded weights, so that centred rows are classified by these weights exactly.
            offset = weights.double() @ whitening.mean
            mean = whitening.mean.float().to(device)
        return cls(weights.to(device), bias.float().to(device), offset.float().to(device), mean)

    def exponents(self, z: Tensor, scales: Tensor) -> Tensor:
        """Base-2 logarithms of the posterior of rows, up to a constant; at most 0."""
        products = torch.addmm(self.offset, z, self.weights.T, beta=-1)
        x = torch.addcmul(self.bias, products, scales, out=products)
        return x.sub_(x.amax(1, keepdim=True))

    def sum_centred(self, factors: Tensor, z: Tensor) -> Tensor:
        """Sums of centred rows, each times its factor for each class, ``(class, dim)``."""
        total = factors.T @ z
        if self.mean is None:
            return total
        return total.addr_(factors.sum(0), self.mean, alpha=-1)


def posterior(z: Tensor, scales: Tensor, classifier: Classifier) -> Tensor:
    """Probabilities of the classes, shape ``(row, class)``."""
    p = classifier.exponents(z, scales).exp2_()
    return p.mul_(p.sum(1, keepdim=True).reciprocal_())


def class_sums(z: Tensor, scales: Tensor, classifier: Classifier, power: float) -> Tensor:
    r"""Return :math:`\sum_i p_{ik}^{1+\alpha}` over the rows of a chunk, float64, ``(class,)``."""
    x = classifier.exponents(z, scales)
    total = torch.exp2(x).sum(1)
    return (total.pow_(-power) @ x.mul_(power).exp2_()).double()


def query_moments(
    z: Tensor, scales: Tensor, classifier: Classifier, power: float, shift: Tensor
) -> Tensor:
    r"""Return sums over the queries of a chunk: :math:`(q - p) s (z - \mu)`, :math:`p`, :math:`q`.

    ``shift`` is the term that [Q-STEP] subtracts from the logarithms of each class, in base 2.
    Shape ``(class, dim + 2)``, float64.
    """
    x = classifier.exponents(z, scales)
    p = torch.exp2(x)
    p_scale = p.sum(1).reciprocal_()
    q = x.mul_(power).sub_(shift).exp2_()
    q_scale = q.sum(1).reciprocal_()
    sums = torch.stack((p_scale @ p, q_scale @ q), dim=1)
    p_scale, q_scale = (each.unsqueeze(1) * scales for each in (p_scale, q_scale))
    moved = q.mul_(q_scale).addcmul_(p, p_scale, value=-1)
    return torch.cat((classifier.sum_centred(moved, z), sums), dim=1).double()


def support_moments(z: Tensor, scales: Tensor, y: Tensor, classifier: Classifier) -> Tensor:
    r"""Return sums over labelled rows: :math:`(y - p) s (z - \mu)`, :math:`p` and :math:`y`.

    Shape ``(class, dim + 2)``, float64.
    """
    p = posterior(z, scales, classifier)
    one_hot = torch.zeros_like(p).scatter_(1, y.unsqueeze(1), 1.0)
    sums = torch.stack((p.sum(0), one_hot.sum(0)), dim=1)
    moved = one_hot.sub_(p).mul_(scales)
    return torch.cat((classifier.sum_centred(moved, z), sums), dim=1).double()


def prediction_sums(z: Tensor, scales: Tensor, classifier: Classifier) -> Tensor:
    r"""Return :math:`\sum_i p_{ik}` over the rows of a chunk, float64, ``(class,)``."""
    return posterior(z, scales, classifier).sum(0).double()


def best_classes(
    z: Tensor, scales: Tensor, classifier: Classifier
) -> tuple[Tensor, Tensor, Tensor]:
    """Label, its probability and its margin over the second class for every row, on the CPU."""
    top, place = posterior(z, scales, classifier).topk(2, dim=1)
    return place[:, 0].int().cpu(), top[:, 0].cpu(), (top[:, 0] - top[:, 1]).cpu()
