"""Checks that the adapters share: packages, configuration values, feature width, digest."""

import hashlib
import importlib
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone
from infoshot.core.errors import DataError, MissingDependencyError

_LARGEST_VALUE = 1e30
LARGEST_SIDE = 4096  # pixels of the images that a network takes
_EXTRAS = ("hf", "timm")


def packages(kind: str, *names: str) -> list[ModuleType]:
    """Import optional packages, or raise with the command that installs them."""
    wanted = " and ".join(names)
    install = f"'infoshot[{kind}]'" if kind in _EXTRAS else " ".join(names)
    try:
        return [importlib.import_module(name) for name in names]
    except Exception as error:  # a package built for another PyTorch may raise anything
        if isinstance(error, ImportError) and error.name in names:
            raise MissingDependencyError(
                f"{kind}: encoders need {wanted}; pip install {install}."
            ) from error
        raise MissingDependencyError(
            f"{kind}: encoders need {wanted}, installed here but not importable ({reason(error)})."
        ) from error


def reason(error: Exception) -> str:
    """Return the first sentence of an error message, for use in brackets."""
    lines = str(error).strip().splitlines()
    return lines[0].split(". ")[0].rstrip(". ") if lines else type(error).__name__


def side(what: str, value: object) -> int:
    """Check the side of a square in pixels."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataError(f"{what} must be the side of a square in pixels; got {value!r:.80}.")
    if value > LARGEST_SIDE:
        raise DataError(f"{what} must be at most {LARGEST_SIDE} pixels.")
    return value


def channels(what: str, value: object) -> tuple[float, float, float]:
    """Check that there is one finite number per channel."""
    if isinstance(value, list | tuple) and len(value) == 3:
        red, green, blue = value
        if all(isinstance(v, int | float) and abs(v) < _LARGEST_VALUE for v in value):
            return float(red), float(green), float(blue)
    raise DataError(f"{what} must be three finite numbers, one per channel; got {value!r:.80}.")


def scales(what: str, value: object) -> tuple[float, float, float]:
    """Check that there is one positive number per channel."""
    numbers = channels(what, value)
    if min(numbers) <= 0:
        raise DataError(f"{what} must be above 0 in every channel; got {value!r}.")
    return numbers


def feature_width(what: str, backbone: Backbone) -> int:
    """Find the number of features per image by encoding two black images."""
    crop = backbone.input_spec.crop
    where = next((weights.device for weights in backbone.parameters()), torch.device("cpu"))
    try:
        with torch.inference_mode():
            features = backbone(torch.zeros(2, 3, crop, crop, device=where))
    except Exception as error:  # third-party code may raise anything
        raise DataError(
            f"{what}: failed on images of {crop} x {crop} pixels ({reason(error)})."
        ) from error
    if not isinstance(features, Tensor):
        raise DataError(
            f"{what}: must give a row of floating-point numbers for each image; gave "
            f"{type(features).__name__}."
        )
    shape: tuple[int, ...] = tuple(features.shape)
    if len(shape) != 2 or shape[0] != 2 or not shape[1] or not features.is_floating_point():
        raise DataError(
            f"{what}: must give a row of floating-point numbers for each image; gave "
            f"{features.dtype} of shape {shape} for two images."
        )
    return shape[1]


def network_digest(network: nn.Module, facts: Mapping[str, Any]) -> str:
    """Hash all weights with their names, and ``facts``: what else the features depend on."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(content.numpy().tobytes())
    return digest.hexdigest()
