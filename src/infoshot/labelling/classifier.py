r"""The classifier that a run leaves behind: class weights, calibration, and outlier detection.

It classifies new images independently of each other. An image is an outlier if it is farther from
every class than the examples of the classes are. Its outlier score is one minus the cosine with the
nearest class mean *of the examples*: the class weights of a solve move towards all images, outliers
included, and would not do. The cut-off is the score that 95 % of the examples stay below, each
compared with class means that do not contain it, so about 5 % of the images that belong to a class
are reported as outliers too. This was chosen on the validation classes of mini-ImageNet, see
``scripts/outlier_validation.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.core.errors import DataError
from infoshot.core.json_file import FileText, check_json
from infoshot.core.tensor_file import digest_tensors, format_tensors, parse_tensors
from infoshot.core.types import BaseStatistics, FeatureTable
from infoshot.features import prepare
from infoshot.features.normalize import find_statistics
from infoshot.labelling.calibrate import calibrate
from infoshot.labelling.run_files import CLASSIFIER, RUN_FILES, EncoderFacts
from infoshot.solvers import Method, resolve_method

SHARE_INSIDE = 0.95
_ENOUGH_EXAMPLES = 10
_FAR = 2.5  # without enough examples: cut-off in units of the distance from median to 90 %
_FORMATS = tuple(f"infoshot.label.classifier/{number}" for number in (1, 2, 3, 4))
_FORMAT = _FORMATS[-1]
_WITH_DIGEST = _FORMATS[2:]
_KIND = "classifier"
_LARGEST = 1e18  # products of two such numbers are finite in float32


@dataclass(frozen=True, eq=False)
class Classifier:
    """Class weights, and everything else that turns the features of an image into a label.

    Parameters
    ----------
    weights
        Class weights, shape ``(class, dim)``.
    centres
        Class means of the examples, shape ``(class, dim)``.
    classes
        Names of the classes.
    backbone, encoder
        The encoder's name, and the provenance of its features.
    method, settings
        The method whose posterior is used with the weights.
    temperature, exponent
        Temperature of the posterior, and the power that calibrates its probabilities.
    threshold, reject_outliers
        Confidence below which a label is unsure, and whether outliers get no label.
    outlier_cutoff
        Outlier score above which an image is an outlier.
    base
        What is known about the base classes of the encoder, if the method uses it.
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
    outlier_cutoff: float
    base: BaseStatistics | None = None

    def probabilities(self, features: Tensor) -> Tensor:
        """Return calibrated probabilities, shape ``(image, class)``."""
        method = resolve_method(self.method).with_settings(self.settings)
        solver = method.solver.at_temperature(self.temperature)
        z = prepare_features(features, method, self.base).unsqueeze(0)
        log_p = solver.classify(z, self.weights.unsqueeze(0))
        return calibrate(log_p[0].exp(), self.exponent)

    def find_outliers(self, features: Tensor) -> Tensor:
        """Return the mask of the images that are outliers, shape ``(image,)``."""
        z = prepare_features(features, resolve_method(self.method), self.base)
        return outlier_scores(z, self.centres) > self.outlier_cutoff

    def to_bytes(self) -> bytes:
        """Format it as safetensors, with a digest of the tensors."""
        tensors = {"weights": self.weights, "centres": self.centres}
        others = {name: value for name, value in vars(self).items() if name not in tensors}
        if (base := others.pop("base")) is not None:
            tensors |= {"base_mean": base.mean, "base_scatter": base.scatter}
        facts = {**others, "format": _FORMAT}
        return format_tensors(
            tensors, {**facts, "sha256": digest_tensors(tensors, facts)}, kind=_KIND
        )


class _Facts(TypedDict):
    """The facts beside the tensors in the file."""

    classes: list[str]
    backbone: FileText
    encoder: EncoderFacts
    method: str
    settings: dict[str, Any]
    temperature: float
    exponent: float
    threshold: float
    reject_outliers: bool
    outlier_cutoff: float


def load_classifier(path: Path) -> Classifier:
    """Read a classifier from its file, or from the folder of a run.

    Raises
    ------
    DataError
        If it is missing, damaged, or something else.
    """
    if path.is_dir():
        path = path / CLASSIFIER
    content = RUN_FILES.read_file(path.parent, path.name)
    if content is None:
        raise DataError(f"{path}: there is no such file.")
    tensors, facts = parse_tensors(content, kind=_KIND, path=path)
    version, has_digest = facts.get("format"), facts.get("format") in _WITH_DIGEST
    if has_digest and facts.pop("sha256", "") != digest_tensors(tensors, facts):
        raise DataError(f"{path}: damaged, or not a classifier file (its digest differs).")
    facts.pop("format", None)
    if version == _FORMATS[0] and "farthest" in facts:
        facts["outlier_cutoff"] = facts.pop("farthest")
    elif version not in _FORMATS[1:]:
        raise DataError(f"{path}: written by another version of InfoShot; label the images again.")
    try:
        if unknown := check_json(facts, _Facts):
            raise ValueError(f"unknown entries {', '.join(unknown[:5])}")
        found = _make(tensors, cast("_Facts", facts))
    except (KeyError, ValueError) as error:
        raise DataError(f"{path}: damaged, or not a classifier file ({error}).") from error
    method = resolve_method(found.method)
    try:
        solver = method.with_settings(found.settings).solver.at_temperature(found.temperature)
        solver.validate(len(found.classes))
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{path}: damaged, or not a classifier file ({error}).") from error
    return found


def _make(tensors: Mapping[str, Tensor], facts: _Facts) -> Classifier:
    """Make the classifier; raise ``ValueError`` if its parts do not fit each other."""
    weights, centres = tensors["weights"], tensors["centres"]
    classes = tuple(facts["classes"])
    if len(set(classes)) < max(len(classes), 2) or "" in classes:
        raise ValueError("its classes must be two or more distinct names")
    for name, value in (("weights", weights), ("centres", centres)):
        if value.dtype not in (torch.float16, torch.float32, torch.float64):
            raise ValueError(f"{name} must be floating point; got {value.dtype}")
        if value.ndim != 2 or value.shape != weights.shape or len(value) != len(classes):
            raise ValueError(f"{name} must have a row for each class; got {tuple(value.shape)}")
        if not (value.numel() and (value.abs() < _LARGEST).all()):
            raise ValueError(f"{name} must be finite numbers")
    base = _read_base(tensors, weights.shape[1])
    temperature, exponent = float(facts["temperature"]), float(facts["exponent"])
    if not (0 < temperature < _LARGEST and 0 < exponent < _LARGEST):
        raise ValueError(
            f"temperature and exponent must be above 0 and finite; got {temperature}, {exponent}"
        )
    if not 0 <= facts["threshold"] <= 1:
        raise ValueError(f"threshold must be between 0 and 1; got {facts['threshold']}")
    return Classifier(
        weights=weights.float(),
        centres=centres.float(),
        classes=classes,
        backbone=facts["backbone"],
        encoder=cast("dict[str, str]", facts["encoder"]),
        method=facts["method"],
        settings=facts["settings"],
        temperature=temperature,
        exponent=exponent,
        threshold=facts["threshold"],
        reject_outliers=facts["reject_outliers"],
        outlier_cutoff=float(facts["outlier_cutoff"]),
        base=base,
    )


def _read_base(tensors: Mapping[str, Tensor], dim: int) -> BaseStatistics | None:
    """Return the base statistics of a file; raise ``ValueError`` if they do not fit."""
    mean, scatter = tensors.get("base_mean"), tensors.get("base_scatter")
    if mean is None or scatter is None:
        if mean is None and scatter is None:
            return None
        raise ValueError("base_mean and base_scatter must be given together")
    if mean.shape != (dim,) or scatter.ndim != 2 or scatter.shape[1] != dim:
        raise ValueError(f"base_mean and base_scatter must have {dim} columns")
    for name, value in (("base_mean", mean), ("base_scatter", scatter)):
        if not (value.is_floating_point() and value.numel() and (value.abs() < _LARGEST).all()):
            raise ValueError(f"{name} must be finite numbers")
    return BaseStatistics(mean.float(), scatter.float())


def find_base(method: Method, provenance: Mapping[str, str]) -> BaseStatistics | None:
    """Find what the method uses about the base classes of the network."""
    weights = provenance.get("weights_sha256", "")
    return find_statistics(weights) if method.uses_base_scatter else None


def prepare_features(features: Tensor, method: Method, base: BaseStatistics | None) -> Tensor:
    """Prepare features as the method requires, with what is known about the base classes."""
    mean, scatter = (None, None) if base is None else (base.mean, base.scatter)
    unlabelled = torch.full((len(features),), -1)
    table = FeatureTable(features, unlabelled, base_mean=mean, base_scatter=scatter)
    return prepare(table, method.preparation)


def class_centres(z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
    """Return the mean example of each class, scaled to unit length, shape ``(class, dim)``."""
    return normalize(_class_sums(z_sup, y_sup, n_way), dim=-1)


def outlier_scores(z: Tensor, centres: Tensor) -> Tensor:
    """Return one minus the cosine with the nearest centre, shape ``(image,)``."""
    return 1 - (normalize(z, dim=-1) @ centres.mT).amax(-1)


def outlier_cutoff(
    z_sup: Tensor, y_sup: Tensor, n_way: int, usable: Tensor, scores: Tensor
) -> float:
    """Choose the score above which an image is an outlier.

    Parameters
    ----------
    z_sup, y_sup, n_way
        The examples.
    usable
        Mask of the examples that may be used, if there are enough of them.
    scores
        Outlier scores of the images, used otherwise.
    """
    several = y_sup.bincount(minlength=n_way)[y_sup] > 1
    own = _leave_one_out_scores(z_sup, y_sup, n_way)[usable & several]
    if len(own) >= _ENOUGH_EXAMPLES:
        return float(own.quantile(SHARE_INSIDE))
    middle, high = scores.quantile(0.5), scores.quantile(0.9)
    return float(middle + _FAR * (high - middle))


def _class_sums(z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
    return z_sup.new_zeros(n_way, z_sup.shape[1]).index_add_(0, y_sup, z_sup)


def _leave_one_out_scores(z_sup: Tensor, y_sup: Tensor, n_way: int) -> Tensor:
    """Score each example against class means that do not contain it."""
    sums, z = _class_sums(z_sup, y_sup, n_way), normalize(z_sup, dim=-1)
    cosines = z @ normalize(sums, dim=-1).mT
    own = torch.linalg.vecdot(z, normalize(sums[y_sup] - z_sup, dim=-1))
    return 1 - cosines.scatter_(1, y_sup.unsqueeze(1), own.unsqueeze(1)).amax(-1)
