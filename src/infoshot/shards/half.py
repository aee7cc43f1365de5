r"""The passes of ``passes.py`` for float16 rows on a GPU, on its tensor cores.

Rows stay as they are stored; scores are scaled by one over their length instead. Class weights are
rounded to float16 for the products, which sum in float32: the roundings of d coordinates average
out, so that a logit is off by about :math:`\tau 2^{-12} / \sqrt d`. What lies between the products
is one kernel each, which reads the scores once. Differences q - p are stored in float16 as well,
times 4096 so that small ones keep their digits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.shards.passes import LOG2_E

MOST_CLASSES = 4096  # a row of scores must fit into registers


@dataclass(frozen=True, eq=False)
class Classifier:
    """Class weights in float16, scaled to the base 2, and their bias in float32."""

    weights: Tensor  # [class, dim]
    bias: Tensor  # [class]

    @classmethod
    def of(cls, w: Tensor, temperature: float, device: str) -> "Classifier":
        """From weights in float64, ``(class, dim)``."""
        scale = temperature * LOG2_E
        bias = torch.linalg.vecdot(w, w) * (-scale / 2)
        return cls((w * scale).half().to(device), bias.float().to(device))

    def products(self, z: Tensor) -> Tensor:
        """Products of rows and weights, float32, ``(row, class)``."""
        return torch.mm(z, self.weights.T, out_dtype=torch.float32)


def class_sums(z: Tensor, inverse: Tensor, classifier: Classifier, power: float) -> Tensor:
    """As in ``passes.py``, of rows with one over their lengths."""
    from infoshot.shards.kernels import power_sums

    return power_sums(classifier.products(z), inverse, classifier.bias, power)


def query_moments(
    z: Tensor, inverse: Tensor, classifier: Classifier, power: float, shift: Tensor
) -> Tensor:
    """As in ``passes.py``, of rows with one over their lengths."""
    from infoshot.shards.kernels import SCALE, differences

    moved, sums = differences(classifier.products(z), inverse, classifier.bias, power, shift)
    product = torch.mm(moved.T, z, out_dtype=torch.float32).div_(SCALE)
    return torch.cat((product, sums.float()), dim=1).double()
