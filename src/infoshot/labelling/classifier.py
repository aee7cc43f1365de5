"""The classifier that a labelling leaves behind: labels newcomers one by one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable
from infoshot.features import prepare
from infoshot.labelling.calibrate import calibrated
from infoshot.labelling.outliers import strangeness
from infoshot.solvers import METHODS, Method

_FORMAT = "infoshot.labelling.classifier/1"


@dataclass(frozen=True, eq=False)
class Classifier:
    """Class weights, and everything that turns an image's features into a label.

    Parameters
    ----------
    weights
        Shape ``(class, feature_dim)``.
    classes
        Their names.
    backbone, encoder
        How the encoder is asked for, and all that its features depend on.
    method, settings
        The method, whose posterior is used with the weights.
    temperature, exponent
        Its temperature, and the power that calibrates its probabilities.
    threshold, reject_outliers
        Confidence below which a label is unsure, and whether outliers get none.
    centres, farthest
        Class means of the examples, and how strange to all of them an image may be before it is an
        outlier.
    """

    weights: Tensor
    centres: Tensor
    classes: tuple[str, ...]
    backbone: str
    encoder: Mapping[str, str]
    method: str
    settings: Mapping[str, Any]
    temperature: float
    exponent: float
    threshold: float
    reject_outliers: bool
    farthest: float

    def probabilities(self, features: Tensor) -> Tensor:
        """Calibrated, shape ``(image, class)``."""
        method = METHODS[self.method].with_settings(self.settings)
        solver = method.solver.with_settings(temperature=self.temperature)
        log_p = solver.classify(prepared(features, method).unsqueeze(0), self.weights.unsqueeze(0))
        return calibrated(log_p[0].exp(), self.exponent)

    def strange(self, features: Tensor) -> Tensor:
        """Which images are outliers, shape ``(image,)``."""
        z = prepared(features, METHODS[self.method])
        return strangeness(z, self.centres) > self.farthest

    def save(self, path: Path) -> None:
        """Write it as safetensors."""
        tensors = {"weights": self.weights.contiguous(), "centres": self.centres.contiguous()}
        facts = {name: value for name, value in vars(self).items() if name not in tensors}
        # A single entry, since safetensors writes several in any order.
        metadata = {"classifier": json.dumps({"format": _FORMAT, **facts}, sort_keys=True)}
        write_atomically(path, save(tensors, metadata=metadata))


def load_classifier(path: Path) -> Classifier:
    """Read what :meth:`Classifier.save` wrote.

    Raises
    ------
    DataError
        If it is missing, damaged, or something else.
    """
    if path.is_dir():
        path = path / "classifier.safetensors"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("classifier", "{}"))
            if facts.pop("format", None) != _FORMAT:
                raise DataError(f"{path}: not a classifier that 'infoshot label' wrote.")
            weights, centres = file.get_tensor("weights"), file.get_tensor("centres")
        return Classifier(weights, centres, tuple(facts.pop("classes")), **facts)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path}: damaged, or not a classifier that 'infoshot label' wrote ({error})."
        ) from error


def prepared(features: Tensor, method: Method) -> Tensor:
    """Features as the method wants them."""
    nothing = torch.full((len(features),), -1)
    return prepare(FeatureTable(features, nothing), method.preparation)
