r"""Whiten features by the scatter within the base classes, on which a network was trained.

Images of one class differ more in some directions of the feature space than in others. What varies
within the base classes, such as pose, background and light, varies within new classes too, and says
little about the class of an image. Whitening makes these directions shorter:

.. math:: z' = 0.8 \, \frac{T (z - \mu)}{\|T (z - \mu)\|}, \qquad
          T = \left(I + \tfrac{1}{2} S\right)^{-1/2},

where :math:`\mu` is the mean feature of the base classes and S the covariance of the features
around their class means, divided by its mean eigenvalue. The one half keeps directions of little
scatter as they are. S is stored as a matrix B of few rows with :math:`S \approx B^T B`: its
principal directions, as long as the standard deviation.

Whitened features of two images are nearly orthogonal, so unit vectors would be farther apart than
plain features of length one. The length 0.8 makes up for it: temperatures of solvers fit both. All
constants were chosen on half of the validation classes of mini-ImageNet and CUB, see
``docs/tim-auto.md``.
"""

import torch
from torch import Tensor

from infoshot.core.types import BaseStatistics

RANK = 128  # directions that are kept; 256 and all of them gain less than 0.2 points
LENGTH = 0.8  # of whitened features
_SHARE_OF_SCATTER = 0.5


def measure_scatter(features: Tensor, labels: Tensor, rank: int = RANK) -> Tensor | None:
    """Measure the scatter within classes, relative to its mean eigenvalue.

    Parameters
    ----------
    features, labels
        Features of the base classes, shapes ``(sample, dim)`` and ``(sample,)``.
    rank
        Number of principal directions that are kept.

    Returns
    -------
    Shape ``(direction, dim)``, float32, the direction of largest scatter first. ``None`` if samples
    of the same class do not differ.

    Examples
    --------
    >>> z = torch.tensor([[0.0, 0.0], [4.0, 0.0], [9.0, 1.0], [9.0, 1.0]])
    >>> measure_scatter(z, torch.tensor([0, 0, 1, 1])).abs()
    tensor([[1.4142, 0.0000]])
    """
    z = features.double()
    _, own, counts = labels.unique(return_inverse=True, return_counts=True)
    means = z.new_zeros(len(counts), z.shape[1]).index_add_(0, own, z) / counts.unsqueeze(1)
    deviations = z - means[own]
    variances, directions = torch.linalg.eigh(deviations.mT @ deviations)
    mean = variances.clamp_min(0).mean()
    if not mean > 0:
        return None
    kept = variances > 1e-12 * variances.amax()
    kept[:-rank] = False
    rows = directions[:, kept] * (variances[kept] / mean).sqrt()
    principal: Tensor = rows.mT.flip(0).float().contiguous()
    return principal


def whiten(features: Tensor, base: BaseStatistics) -> Tensor:
    """Apply T to centred features; the caller scales the rows to the length 0.8.

    Parameters
    ----------
    features
        Shape ``(sample, dim)``, as the network gives them.
    base
        Mean feature of the base classes, and what :func:`measure_scatter` returns for them.

    Returns
    -------
    Shape ``(sample, dim)``.

    Examples
    --------
    >>> z = torch.tensor([[5.0, 0.0], [0.0, 5.0]])
    >>> whiten(z, BaseStatistics(torch.zeros(2), torch.tensor([[4.0, 0.0]])))
    tensor([[1.6667, 0.0000],
            [0.0000, 5.0000]])
    """
    _, deviations, directions = torch.linalg.svd(base.scatter.double(), full_matrices=False)
    removed = 1 - (1 + _SHARE_OF_SCATTER * deviations.square()).rsqrt()
    removed, directions = removed.to(features), directions.to(features)
    centred = features - base.mean.to(features)
    along = (centred @ directions.mT).mul_(removed)
    shortened: Tensor = centred - along @ directions
    return shortened
