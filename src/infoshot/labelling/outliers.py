r"""Which photos belong to no class: those farther from every class than its examples are.

The score of a photo is one minus its cosine with the nearest class mean *of the examples*. The
classes that a solve ends with would not do: it moves them towards all photos, strangers included.
The cut-off is the score that 95 in 100 examples stay below, each measured against class means
without it; so about 5 in 100 photos of the classes are taken for outliers as well.

Chosen on the validation classes of mini-ImageNet, ``scripts/outlier_validation.py``.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

SHARE_INSIDE = 0.95
_ENOUGH = 10  # examples to judge by
_FAR = 2.5  # without them: so many times as far above the middle as nine in ten photos are


def class_centres(z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
    """Mean of the examples of each class, of unit length, shape ``(class, dim)``."""
    return normalize(_class_sums(z_sup, y_sup, n_way), dim=-1)


def strangeness(z: Tensor, centres: Tensor) -> Tensor:
    """One minus the cosine with the nearest centre, shape ``(photo,)``."""
    return 1 - (normalize(z, dim=-1) @ centres.mT).amax(-1)


def cut_off(z_sup: Tensor, y_sup: Tensor, n_way: int, counts: Tensor, scores: Tensor) -> float:
    """Score above which a photo is an outlier.

    Parameters
    ----------
    z_sup, y_sup, n_way
        The examples.
    counts
        Mask of the examples to judge by, if there are enough.
    scores
        Of the photos, to judge by otherwise.
    """
    several = y_sup.bincount(minlength=n_way)[y_sup] > 1
    own = _strangeness_without_itself(z_sup, y_sup, n_way)[counts & several]
    if len(own) >= _ENOUGH:
        return float(own.quantile(SHARE_INSIDE))
    middle, high = scores.quantile(0.5), scores.quantile(0.9)
    return float(middle + _FAR * (high - middle))


def _class_sums(z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
    return z_sup.new_zeros(n_way, z_sup.shape[1]).index_add_(0, y_sup, z_sup)


def _strangeness_without_itself(z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
    """Score of each example against class means that it is no part of."""
    sums, z = _class_sums(z_sup, y_sup, n_way), normalize(z_sup, dim=-1)
    cosines = z @ normalize(sums, dim=-1).mT
    own = torch.linalg.vecdot(z, normalize(sums[y_sup] - z_sup, dim=-1))
    return 1 - cosines.scatter_(1, y_sup.unsqueeze(1), own.unsqueeze(1)).amax(-1)
