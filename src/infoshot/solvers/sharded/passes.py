r"""The two passes of sharded TIM-ADM over one chunk of rows, see ``sharded_adm.py``.

Exponentials use base 2, which scales the temperature by log2(e); the maximum of a row is subtracted
first. Rows need no second maximum for q: its numerators
:math:`(e_{ik} / \max_j e_{ij})^{1+\alpha} s_k^{-b}` with :math:`b = \beta / (1 + \beta)` are at
most :math:`K^{1+\alpha} \max(1, s_k)^{1-b}`, the largest of a row is at least
:math:`|Q|^{-b}`, and both are well within float32.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPE = torch.float32  # dtype of the class weights
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True, eq=False)
class Classifier:
    """Class weights for a pass: on its device, scaled for base 2, with a float32 bias."""

    weights: Tensor  # [class, dim]
    bias: Tensor  # [class]

    @classmethod
    def of(
        cls, w: Tensor, temperature: float, device: str, dtype: torch.dtype = torch.float32
    ) -> "Classifier":
        """Make it from float64 weights, ``(class, dim)``; ``dtype`` is that of the rows."""
        scale = temperature * _LOG2_E
        bias = torch.linalg.vecdot(w, w) * (-scale / 2)
        return cls((w * scale).to(dtype).to(device), bias.float().to(device))

    def exponents(self, z: Tensor) -> Tensor:
        """Base-2 logarithms of the posterior of rows, up to a constant; at most 0."""
        x = torch.addmm(self.bias, z, self.weights.T)
        return x.sub_(x.amax(1, keepdim=True))


def posterior(z: Tensor, classifier: Classifier) -> Tensor:
    """Probabilities of the classes, shape ``(row, class)``."""
    p = classifier.exponents(z).exp2_()
    return p.mul_(p.sum(1, keepdim=True).reciprocal_())


def class_sums(z: Tensor, classifier: Classifier, power: float) -> Tensor:
    r"""Return :math:`\sum_i p_{ik}^{1+\alpha}` over the rows of a chunk, float64, ``(class,)``."""
    x = classifier.exponents(z)
    total = torch.exp2(x).sum(1)
    return (total.pow_(-power) @ x.mul_(power).exp2_()).double()


def query_moments(z: Tensor, classifier: Classifier, power: float, shift: Tensor) -> Tensor:
    r"""Return sums over the queries of a chunk: :math:`(q - p) z`, :math:`p` and :math:`q`.

    ``shift`` is the term that [Q-STEP] subtracts from the logarithms of each class, in base 2.
    Shape ``(class, dim + 2)``, float64.
    """
    x = classifier.exponents(z)
    p = torch.exp2(x)
    p_scale = p.sum(1).reciprocal_()
    q = x.mul_(power).sub_(shift).exp2_()
    q_scale = q.sum(1).reciprocal_()
    sums = torch.stack((p_scale @ p, q_scale @ q), dim=1)
    q.mul_(q_scale.unsqueeze(1)).addcmul_(p, p_scale.unsqueeze(1), value=-1)
    return torch.cat((q.T @ z, sums), dim=1).double()


def support_moments(z: Tensor, y: Tensor, classifier: Classifier) -> Tensor:
    r"""Return sums over labelled rows: :math:`(y - p) z`, :math:`p` and :math:`y`.

    Shape ``(class, dim + 2)``, float64.
    """
    p = posterior(z, classifier)
    one_hot = torch.zeros_like(p).scatter_(1, y.unsqueeze(1), 1.0)
    sums = torch.stack((p.sum(0), one_hot.sum(0)), dim=1)
    return torch.cat((one_hot.sub_(p).T @ z, sums), dim=1).double()


def prediction_sums(z: Tensor, classifier: Classifier) -> Tensor:
    r"""Return :math:`\sum_i p_{ik}` over the rows of a chunk, float64, ``(class,)``."""
    return posterior(z, classifier).sum(0).double()


def best_classes(z: Tensor, classifier: Classifier) -> tuple[Tensor, Tensor, Tensor]:
    """Label, its probability and its margin over the second class for every row, on the CPU."""
    top, place = posterior(z, classifier).topk(2, dim=1)
    return place[:, 0].int().cpu(), top[:, 0].cpu(), (top[:, 0] - top[:, 1]).cpu()
