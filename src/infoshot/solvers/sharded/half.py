r"""The passes of ``passes.py`` for float16 rows on a GPU, on its tensor cores.

Class weights are rounded to float16 for the products, which sum in float32: the rounding errors of
d coordinates average out, so the error of a logit is about :math:`\tau 2^{-12} / \sqrt d`. One
kernel per pass computes what lies between the products and reads the scores once. Differences q - p
are stored in float16 too, times 4096 so that small ones keep their precision.
"""

import torch
from torch import Tensor

from infoshot.solvers.sharded.passes import Classifier

DTYPE = torch.float16
MOST_CLASSES = 4096  # a row of scores must fit into registers


def class_sums(z: Tensor, scales: Tensor, classifier: Classifier, power: float) -> Tensor:
    """As in ``passes.py``, for rows in float16."""
    from infoshot.solvers.sharded.pass_kernels import power_sums

    return power_sums(_products(z, classifier), scales, classifier, power)


def query_moments(
    z: Tensor, scales: Tensor, classifier: Classifier, power: float, shift: Tensor
) -> Tensor:
    """As in ``passes.py``, for rows in float16."""
    from infoshot.solvers.sharded.pass_kernels import SCALE, differences

    moved, sums = differences(_products(z, classifier), scales, classifier, power, shift)
    product = torch.mm(moved.T, z, out_dtype=torch.float32)
    if classifier.mean is not None:
        product.addr_(moved.sum(0, dtype=torch.float32), classifier.mean, alpha=-1)
    return torch.cat((product.div_(SCALE), sums.float()), dim=1).double()


def _products(z: Tensor, classifier: Classifier) -> Tensor:
    """Products of rows and weights, float32, ``(row, class)``."""
    return torch.mm(z, classifier.weights.T, out_dtype=torch.float32)
