"""The file of a fitted ``TIMClassifier``: what it holds, checked before anything is made of it."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.core.class_labels import Array, stored_labels
from infoshot.core.errors import DataError
from infoshot.core.tensor_file import read_tensor_file

KIND = "TIMClassifier"
_HIGHEST_TEMPERATURE = 1e30  # it must be finite in float32


def read_fitted(
    path: Path, parameters: Collection[str]
) -> tuple[dict[str, Array], dict[str, Any], Array]:
    """Read a file that ``TIMClassifier.save`` wrote.

    Parameters
    ----------
    path
        The file.
    parameters
        Names of the estimator's parameters.

    Returns
    -------
    The fitted arrays by name, the facts beside them, and the classes.

    Raises
    ------
    DataError
        If the file is missing or damaged, or its content does not fit together.
    """
    tensors, facts = read_tensor_file(path, kind=KIND)
    try:
        classes = stored_labels(facts["classes"], facts["classes_dtype"])
        if set(facts["parameters"]) != set(parameters):
            raise ValueError(f"the parameters must be {', '.join(parameters)}")
        _check_facts(facts)
        _check_tensors(tensors, facts, len(classes))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: damaged, or not a {KIND} file ({reason}).") from error
    return {name: tensor.numpy() for name, tensor in tensors.items()}, facts, classes


def _check_facts(facts: Mapping[str, Any]) -> None:
    temperature = facts["temperature"]
    if not isinstance(temperature, float) or not 0 < temperature < _HIGHEST_TEMPERATURE:
        raise ValueError(f"the temperature must be a number above 0; got {temperature!r}")
    if not isinstance(facts["parameters"]["method"], (str, dict)):
        raise TypeError("the method must be a name, or its facts")
    if not isinstance(facts["note"], str) or type(facts["n_iter"]) is not int:
        raise TypeError("the note must be text and the number of steps a whole number")
    names = facts["feature_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("the names of the features must be a list of text")


def _check_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], n_way: int) -> None:
    weights, p = tensors["prototypes"], tensors["label_distributions"]
    for name in ("prototypes", "label_distributions", "outlier_scores"):
        if tensors[name].dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name} must be float32 or float64; got {tensors[name].dtype}")
    sizes = (weights.ndim, p.ndim, tensors["outlier_scores"].shape == p.shape[:1])
    if sizes != (2, 2, True) or not len(weights) == p.shape[1] == n_way >= 2:
        raise ValueError(f"the arrays do not fit to {n_way} classes")
    if len(facts["feature_names"]) not in (0, weights.shape[1]):
        raise ValueError("there must be a name for each feature, or none")
    if not (weights.isfinite().all() and p.isfinite().all()):
        raise ValueError("the arrays hold values that are not finite")
