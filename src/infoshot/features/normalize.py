"""Prepare features for a method: scale them to one length, as they are or changed first."""

import warnings

import torch
from torch import Tensor

from infoshot.core.checks import numeric_tensor
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.types import FeatureTable, Preparation
from infoshot.features.base_statistics import base_statistics
from infoshot.features.whitening import LENGTH, whiten


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
    return scaled.mul_(LENGTH) if preparation == "whitened" else scaled


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
