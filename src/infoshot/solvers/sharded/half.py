r"""The passes of ``passes.py`` for float16 rows on a GPU, on its tensor cores.

Rows stay as they are stored; scores are scaled by one over their length instead. Class weights are
rounded to float16 for the products, which sum in float32: the roundings of d coordinates average
out, so that a logit is off by about :math:`\tau 2^{-12} / \sqrt d`. What lies between the products
is one kernel each, which reads the scores once. Differences q - p are stored in float16 as well,
times 4096 so that small ones keep their digits.
"""

import torch
from torch import Tensor

from infoshot.solvers.sharded.passes import Classifier

DTYPE = torch.float16
MOST_CLASSES = 4096  # a row of scores must fit into registers


def class_sums(z: Tensor, inverse: Tensor, classifier: Classifier, power: float) -> Tensor:
    """As in ``passes.py``, of rows with one over their lengths."""
    from infoshot.solvers.sharded.pass_kernels import power_sums

    return power_sums(_products(z, classifier), inverse, classifier.bias, power)


def query_moments(
    z: Tensor, inverse: Tensor, classifier: Classifier, power: float, shift: Tensor
) -> Tensor:
    """As in ``passes.py``, of rows with one over their lengths."""
    from infoshot.solvers.sharded.pass_kernels import SCALE, differences

    moved, sums = differences(_products(z, classifier), inverse, classifier.bias, power, shift)
    product = torch.mm(moved.T, z, out_dtype=torch.float32).div_(SCALE)
    return torch.cat((product, sums.float()), dim=1).double()


def _products(z: Tensor, classifier: Classifier) -> Tensor:
    """Products of rows and weights, float32, ``(row, class)``."""
    return torch.mm(z, classifier.weights.T, out_dtype=torch.float32)
