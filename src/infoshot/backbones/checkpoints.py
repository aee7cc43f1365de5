"""Checkpoints: weights as safetensors, everything about them as JSON beside.

A checkpoint is a folder with ``checkpoint.json`` (the backbone's name, the class names it was
trained on, the configuration, the sha256 of the weights) and ``weights-SHA256.safetensors``. New
weights are written under a new name, then the description is replaced in one move, then the old
weights go: whenever the writer is killed, the folder holds a whole checkpoint, old or new. While a
training goes on, what it needs to continue lies beside the weights and is replaced together with
them. Checkpoints in the layout of the TIM authors' release (``state_dict`` with ``module.``
prefixes) are read too, without running anything in them.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from infoshot.backbones.backbone import Backbone
from infoshot.backbones.registry import make_backbone, pretrained_backbone
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.errors import DataError, InvalidArgumentError

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


@dataclass(frozen=True, eq=False)
class TrainingState:
    """What a training needs to go on: facts that JSON can hold, and tensors by name."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def save_checkpoint(
    folder: Path,
    backbone_name: str,
    weights: Mapping[str, Tensor],
    *,
    class_names: tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    training: TrainingState | None = None,
) -> str:
    """Write a checkpoint and return the digest of its weights.

    ``weights`` are the backbone's ``state_dict``, stored in ``dtype``; float16 halves the file.
    """
    make_folder(folder)
    content = _content(weights, dtype)
    digest = hashlib.sha256(content).hexdigest()
    description: dict[str, Any] = {
        "format": _FORMAT,
        "backbone": backbone_name,
        "weights_sha256": digest,
        "class_names": list(class_names),
        "config": dict(config or {}),
    }
    files = {_path(folder, "weights", digest): content}
    if training is not None:
        content = _content(training.tensors)
        training_digest = hashlib.sha256(content).hexdigest()
        description["training"] = {**training.facts, "sha256": training_digest}
        files[_path(folder, "training", training_digest)] = content
    for path, content in files.items():
        write_atomically(path, content)
    write_atomically(folder / DESCRIPTION_NAME, json.dumps(description, indent=1) + "\n")
    for kind in ("weights", "training"):
        for old in folder.glob(f"{kind}-*.safetensors"):
            if old not in files:
                old.unlink(missing_ok=True)
    return digest


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    DataError
        If it is missing, damaged, or its files do not belong together.
    """
    description = _description(folder)
    digest = description["weights_sha256"]
    path = _path(folder, "weights", digest)
    if not path.is_file() and _description(folder) != description:
        return load_checkpoint(folder)  # replaced by a training between the two looks
    name = description["backbone"]
    backbone = _with_weights(name, _tensors(path, digest), path)
    return Checkpoint(
        name, backbone, digest, tuple(description["class_names"]), description["config"]
    )


def load_training(folder: Path) -> TrainingState:
    """Read what a training needs to go on.

    Raises
    ------
    DataError
        If it is missing or damaged.
    """
    facts = dict(_description(folder)["training"])
    if not facts:
        raise DataError(f"{folder}: a checkpoint, but not of a training that could go on.")
    digest = facts.pop("sha256")
    return TrainingState(facts, _tensors(_path(folder, "training", digest), digest))


def open_checkpoint(checkpoint: Path | None, backbone: str | None) -> Checkpoint:
    """Read whichever weights a user names: a folder, a pretrained backbone, or a PyTorch file."""
    if checkpoint is not None and checkpoint.name == DESCRIPTION_NAME:
        checkpoint = checkpoint.parent
    if checkpoint is not None and checkpoint.is_file():
        if backbone is None:
            raise InvalidArgumentError(
                f"{checkpoint} is a file of weights; say with --backbone which network they are of."
            )
        return import_checkpoint(checkpoint, backbone)
    if (checkpoint is None) == (backbone is None):
        raise InvalidArgumentError(
            "give either --checkpoint with a folder, or --backbone with the name of a pretrained "
            "network, or both if the checkpoint is a PyTorch file of weights."
        )
    return load_checkpoint(checkpoint) if checkpoint else pretrained_checkpoint(str(backbone))


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
    except Exception as error:  # whatever PyTorch makes of damaged bytes
        raise DataError(
            f"{path}: refused; not a whole file of weights that can be read without running code."
        ) from error
    weights = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(v, Tensor) for v in weights.values()):
        raise DataError(f"{path}: must hold weights by name, or a dict with 'state_dict'.")
    weights = {str(name).removeprefix("module."): value for name, value in weights.items()}
    weights = {name: v for name, v in weights.items() if not name.startswith(_CLASSIFIERS)}
    backbone = _with_weights(backbone_name, weights, path)
    return Checkpoint(backbone_name, backbone, _digest(backbone))


def _description(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION_NAME
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder with a checkpoint.")
    if not path.is_file():
        inside = sorted(found.parent for found in folder.glob(f"*/{DESCRIPTION_NAME}"))
        hint = f" Did you mean {' or '.join(map(str, inside))}?" if inside else ""
        raise DataError(f"{path}: there is no such file, so the folder is not a checkpoint.{hint}")
    try:
        description = json.loads(path.read_text())
        if description["format"] != _FORMAT:
            raise KeyError("format")
        names = ("backbone", "weights_sha256", "class_names", "config")
        return {
            "training": description.get("training", {}),
            **{name: description[name] for name in names},
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not the description of a checkpoint ({error!r}).") from error


def _path(folder: Path, kind: str, digest: str) -> Path:
    return folder / f"{kind}-{digest[:16]}.safetensors"


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """Content of a file whose name says its digest."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path}: truncated or changed; its content is not what its name says.")
    try:
        return load(content)
    except SafetensorError as error:
        raise DataError(f"{path}: damaged ({error}).") from error


def _content(tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> bytes:
    return save(
        {
            name: value.detach()
            .to("cpu", dtype if value.is_floating_point() else value.dtype)
            .contiguous()
            for name, value in tensors.items()
        }
    )


def _digest(backbone: Backbone) -> str:
    return hashlib.sha256(_content(backbone.state_dict())).hexdigest()


def _with_weights(name: str, weights: Mapping[str, Tensor], path: Path) -> Backbone:
    """Return the backbone with these weights, all of them and no others."""
    backbone = make_backbone(name)
    own = backbone.state_dict()
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
