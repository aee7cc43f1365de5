r"""Prepare features for a method: scale them to one length, as they are or changed first.

Whitening shortens the directions of the feature space in which images of one class differ. What
varies within the base classes, on which a network was trained, such as pose, background and light,
varies within new classes too, and says little about the class of an image:

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

The package has :math:`\mu` and S of three networks: EfficientNet-Lite0, the default encoder, Lite2,
and the ResNet-18 of the embedded features. They were measured on the 64 train classes of
mini-ImageNet by ``scripts/base_statistics.py``, and are found by the digest of the weights. So
features of these networks can be whitened wherever they come from.
"""

import warnings
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from infoshot.core.checks import numeric_tensor
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.tensor_file import parse_tensors
from infoshot.core.types import BaseStatistics, FeatureTable, Preparation

KIND = "base-statistics"  # of the files
_LENGTH = 0.8  # of whitened features
_COMPARED = 1024  # rows whose lengths are compared
_LEAST_RATIO = 0.25  # of their median to that of the base mean, unless rows were scaled
_SHARE_OF_SCATTER = 0.5


def unit_length(features: Tensor) -> Tensor:
    """Scale every row to Euclidean length one.

    Raises
    ------
    InvalidArgumentError
        If a row is all zero.

    Examples
    --------
    >>> unit_length(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """
    features = numeric_tensor("features", features)
    # Dividing by the largest entry first keeps the squares of huge and tiny rows in range.
    largest = features.abs().amax(-1, keepdim=True)
    if not largest.all():
        row = int((largest == 0).flatten().nonzero()[0])
        raise InvalidArgumentError(
            f"features must not be all zero where they are scaled to unit length; got row {row}."
        )
    scaled = features / largest
    return torch.nn.functional.normalize(scaled, dim=-1)


def choose_preparation(table: FeatureTable, preparation: Preparation) -> Preparation:
    """Return the preparation that these features get.

    Features of a network whose base classes are not known cannot be whitened: they are scaled to
    unit length.

    Examples
    --------
    >>> from infoshot import FeatureTable
    >>> table = FeatureTable(torch.eye(2), torch.tensor([0, 1]))  # its base classes are not known
    >>> choose_preparation(table, "whitened")
    'l2'
    """
    return "l2" if preparation == "whitened" and base_statistics(table) is None else preparation


def prepare(table: FeatureTable, preparation: Preparation) -> Tensor:
    """Prepare features as a method requires, at least in float32.

    ``"whitened"`` scales to unit length if the base classes are not known.

    Raises
    ------
    DataError
        If the base mean is needed and the table has none, or a row is all zero.

    Examples
    --------
    >>> from infoshot import FeatureTable
    >>> table = FeatureTable(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    >>> prepare(table, "l2")
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    features = table.features if table.features.dtype.itemsize >= 4 else table.features.float()
    preparation = choose_preparation(table, preparation)
    if preparation == "none":
        return features
    if preparation == "centred-l2":
        if table.base_mean is None:
            raise DataError(
                "this method subtracts the mean feature of the base classes, but the features have "
                "no base_mean; extract them with it, add it to the file, or choose another method."
            )
        features = features - table.base_mean.to(features)
    if preparation == "whitened" and (base := base_statistics(table)) is not None:
        features = whiten(features, base)
    if preparation == "power-l2":
        features = _take_roots(features)
    try:
        scaled = unit_length(features)
    except InvalidArgumentError as error:
        raise DataError(str(error)) from error
    return scaled.mul_(_LENGTH) if preparation == "whitened" else scaled


def whiten(features: Tensor, base: BaseStatistics) -> Tensor:
    """Apply T to centred features; the caller scales the rows to the length 0.8.

    Parameters
    ----------
    features
        Shape ``(sample, dim)``, as the network gives them.
    base
        Mean feature of the base classes, and what ``measure_scatter`` returns for them.

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
    whitening = Whitening.of(base)
    return whitening.shorten(features - whitening.mean.to(features))


@dataclass(frozen=True, eq=False)
class Whitening:
    """The whitening of this module, for rows that are prepared in parts.

    Parameters
    ----------
    mean
        Mean feature of the base classes, shape ``(dim,)``, float64.
    directions
        The directions that T shortens, unit vectors, shape ``(direction, dim)``, float64.
    removed
        The share of the length that T removes along each, shape ``(direction,)``, float64.
    """

    mean: Tensor
    directions: Tensor
    removed: Tensor
    length: ClassVar[float] = _LENGTH

    @classmethod
    def of(cls, base: BaseStatistics) -> "Whitening":
        """Compute T from what is known about the base classes."""
        _, deviations, directions = torch.linalg.svd(base.scatter.double(), full_matrices=False)
        removed = 1 - (1 + _SHARE_OF_SCATTER * deviations.square()).rsqrt()
        return cls(base.mean.double(), directions, removed)

    def shorten(self, rows: Tensor) -> Tensor:
        """Apply T, which is symmetric, to rows that are centred or differences."""
        return self._add_along(rows, -self.removed)

    def lengthen(self, rows: Tensor) -> Tensor:
        """Apply the inverse of T."""
        return self._add_along(rows, self.removed / (1 - self.removed))

    def _add_along(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Add to rows shares of their parts along the directions."""
        directions = self.directions.to(rows)
        along = (rows @ directions.mT).mul_(shares.to(rows))
        changed: Tensor = rows + along @ directions
        return changed


def base_statistics(table: FeatureTable) -> BaseStatistics | None:
    """Return what is known about the base classes of the network of a table.

    Returns
    -------
    The mean and the scatter; ``None`` if one of them is unknown, or with a warning if the features
    were scaled after the network: the statistics are those of features as it gives them.
    """
    if table.base_mean is not None and table.base_scatter is not None:
        base = BaseStatistics(table.base_mean, table.base_scatter)
    elif (found := find_statistics(table.provenance.get("weights_sha256", ""))) is not None:
        base = found
    else:
        return None
    length, expected = median_length(table.features), float(base.mean.float().norm())
    if length >= _LEAST_RATIO * expected:
        return base
    warnings.warn(
        f"the features have a median length of {length:.3g}, the mean of the base classes has "
        f"{expected:.3g}: they were scaled after the network, so they are not whitened. Pass them "
        "as the network gives them.",
        UserWarning,
        stacklevel=3,
    )
    return None


def median_length(features: Tensor) -> float:
    """Median length of at most 1,024 rows, evenly spaced."""
    some = features[:: max(1, len(features) // _COMPARED)]
    return float(some.float().norm(dim=1).median())


@cache
def find_statistics(weights_sha256: str) -> BaseStatistics | None:
    """Find the statistics of a network that come with the package, if there are any."""
    file = resources.files("infoshot") / "assets" / f"base-{weights_sha256[:16]}.safetensors"
    if not file.is_file():
        return None
    tensors, _ = parse_tensors(file.read_bytes(), kind=KIND, path=Path(str(file)))
    return BaseStatistics(tensors["base_mean"].float(), tensors["base_scatter"].float())


def _take_roots(features: Tensor) -> Tensor:
    """Take square roots; if there are negative values, return the features with a warning."""
    n_negative = int((features < 0).sum())
    if not n_negative:
        return (features + 1e-6).sqrt()
    warnings.warn(
        f"this method takes square roots of the features, but {n_negative} values are negative, so "
        "the features are used without square roots.",
        UserWarning,
        stacklevel=3,
    )
    return features
