r"""The passes of ``passes.py`` for float16 rows on a GPU, on its tensor cores.

Rows are used as stored, and scores are scaled by the inverse length of their row instead. Class
weights are rounded to float16 for the products, which sum in float32: the rounding errors of d
coordinates average out, so the error of a logit is about :math:`\tau 2^{-12} / \sqrt d`. One kernel
per pass computes what lies between the products and reads the scores once. Differences q - p are
stored in float16 too, times 4096 so that small ones keep their precision.
"""

import torch
from torch import Tensor

from infoshot.solvers.sharded.passes import Classifier

DTYPE = torch.float16
MOST_CLASSES = 4096  # a row of scores must fit into registers


def class_sums(z: Tensor, inverse: Tensor, classifier: Classifier, power: float) -> Tensor:
    """As in ``passes.py``, for rows as stored with their inverse lengths."""
    from infoshot.solvers.sharded.pass_kernels import power_sums

    return power_sums(_products(z, classifier), inverse, classifier.bias, power)


def query_moments(
    z: Tensor, inverse: Tensor, classifier: Classifier, power: float, shift: Tensor
) -> Tensor:
    """As in ``passes.py``, for rows as stored with their inverse lengths."""
    from infoshot.solvers.sharded.pass_kernels import SCALE, differences

    moved, sums = differences(_products(z, classifier), inverse, classifier.bias, power, shift)
    product = torch.mm(moved.T, z, out_dtype=torch.float32).div_(SCALE)
    return torch.cat((product, sums.float()), dim=1).double()


def _products(z: Tensor, classifier: Classifier) -> Tensor:
    """Products of rows and weights, float32, ``(row, class)``."""
    return torch.mm(z, classifier.weights.T, out_dtype=torch.float32)
