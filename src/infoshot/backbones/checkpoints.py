"""Checkpoints: weights as safetensors, everything about them as JSON beside.

A checkpoint is a folder with ``checkpoint.json`` (the backbone's name, the class names it was
trained on, the configuration, the sha256 of the weights) and ``weights-SHA256.safetensors``. New
weights are written under a new name, then the description is replaced in one move, then the old
weights go: whenever the writer is killed, the folder holds a whole checkpoint, old or new.
Checkpoints in the layout of the TIM authors' release (``state_dict`` with ``module.`` prefixes) are
read too, without running anything in them.
"""

import hashlib
import json
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from infoshot.atomic import write_atomically
from infoshot.backbones.base import Backbone
from infoshot.backbones.registry import make_backbone, pretrained_backbone
from infoshot.errors import DataError

DESCRIPTION_NAME = "checkpoint.json"
_FORMAT = "infoshot.checkpoint/1"
_CLASSIFIERS = ("fc.", "linear.", "classifier.")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A backbone with its weights, in evaluation mode, and where they come from.

    ``digest`` is the sha256 of the weights; features are kept under it.
    """

    backbone_name: str
    backbone: Backbone
    digest: str
    class_names: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


def save_checkpoint(
    folder: Path,
    backbone_name: str,
    backbone: Backbone,
    *,
    class_names: tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
) -> str:
    """Write a checkpoint and return the digest of its weights."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made a folder ({error.strerror}).") from error
    content = _content(backbone)
    digest = hashlib.sha256(content).hexdigest()
    description = {
        "format": _FORMAT,
        "backbone": backbone_name,
        "weights_sha256": digest,
        "class_names": list(class_names),
        "config": dict(config or {}),
    }
    path = _weights_path(folder, digest)
    write_atomically(path, content)
    write_atomically(folder / DESCRIPTION_NAME, json.dumps(description, indent=1) + "\n")
    for old in folder.glob("weights-*.safetensors"):
        if old != path:
            old.unlink(missing_ok=True)
    return digest


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    DataError
        If it is missing, damaged, or its files do not belong together.
    """
    description = _description(folder / DESCRIPTION_NAME)
    path = _weights_path(folder, description["weights_sha256"])
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != description["weights_sha256"]:
        raise DataError(f"{path}: truncated or changed; its content is not what its name says.")
    try:
        weights = load(content)
    except SafetensorError as error:
        raise DataError(f"{path}: damaged ({error}).") from error
    name = description["backbone"]
    backbone = _with_weights(name, weights, path)
    return Checkpoint(
        name, backbone, digest, tuple(description["class_names"]), description["config"]
    )


def pretrained_checkpoint(name: str) -> Checkpoint:
    """Return a backbone whose weights arrive with the install."""
    backbone = pretrained_backbone(name)
    return Checkpoint(name, backbone, _digest(backbone))


def import_checkpoint(path: Path, backbone_name: str) -> Checkpoint:
    """Read a PyTorch file of weights, such as the authors' release, for a backbone of ours.

    The file may hold the weights, or a dict with ``state_dict``; names may start with ``module.``;
    a classifier in it is left out.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols; what counts is said below
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: refused or not a whole file of weights ({first}).") from error
    weights = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(v, Tensor) for v in weights.values()):
        raise DataError(f"{path}: must hold weights by name, or a dict with 'state_dict'.")
    weights = {str(name).removeprefix("module."): value for name, value in weights.items()}
    weights = {name: v for name, v in weights.items() if not name.startswith(_CLASSIFIERS)}
    backbone = _with_weights(backbone_name, weights, path)
    return Checkpoint(backbone_name, backbone, _digest(backbone))


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path}: there is no such file, so the folder is not a checkpoint.")
    try:
        description = json.loads(path.read_text())
        if description["format"] != _FORMAT:
            raise KeyError("format")
        return {
            name: description[name]
            for name in ("backbone", "weights_sha256", "class_names", "config")
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the description of a checkpoint ({error!r}).") from error


def _weights_path(folder: Path, digest: str) -> Path:
    return folder / f"weights-{digest[:16]}.safetensors"


def _content(backbone: Backbone) -> bytes:
    tensors = {name: value.detach().cpu().contiguous() for name, value in _state(backbone).items()}
    return save(tensors)


def _digest(backbone: Backbone) -> str:
    return hashlib.sha256(_content(backbone)).hexdigest()


def _state(backbone: Backbone) -> dict[str, Tensor]:
    return dict(backbone.state_dict())


def _with_weights(name: str, weights: Mapping[str, Tensor], path: Path) -> Backbone:
    """Return the backbone with these weights, all of them and no others."""
    backbone = make_backbone(name)
    own = _state(backbone)
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    wrong = [key for key in own.keys() & weights.keys() if own[key].shape != weights[key].shape]
    if missing or extra or wrong:
        example = (missing + extra + wrong)[0]
        raise DataError(
            f"{path}: not weights of {name}: {len(missing)} missing, {len(extra)} unknown, "
            f"{len(wrong)} of another shape (such as '{example}')."
        )
    backbone.load_state_dict(weights)
    return backbone.eval()
