"""Checkpoints: weights as safetensors, and a JSON description beside them.

A checkpoint is a folder with ``checkpoint.json`` (the name of the network, the class names it was
trained on, the configuration, the sha256 of the weights) and ``weights-SHA256.safetensors``. The
linear classifier of the training may be beside them, in ``classifier-SHA256.safetensors``, or the
head of a few-shot system, in ``head-SHA256.safetensors``; the description then has an entry
``system`` with its name and settings. Names may be ``package.module:Name`` of a user's class.

New weights are written under a new name, then the description is replaced atomically, then the old
weights are removed: whenever the writer is killed, the folder holds a complete checkpoint, old or
new. During a training, what it needs to resume is stored beside the weights and is replaced
together with them. Files of weights in the layout of the TIM authors' release (``state_dict`` with
``module.`` prefixes) are read too, without executing code from them.

The folder of a training run holds two checkpoints, ``best`` and ``last``. Where a checkpoint is
wanted, it stands for ``best``, which is what the authors of TIM evaluate.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from infoshot.backbones.backbone import (
    Backbone,
    Encoder,
    StoredSystem,
    weights_content,
    weights_digest,
)
from infoshot.backbones.checkpoint_description import (
    BEST,
    DESCRIPTION_NAME,
    FORMAT,
    named_files,
    read_description,
    tensors_path,
)
from infoshot.backbones.eight_bits import quantise_weights, restore_weights
from infoshot.backbones.external.plain_module import PlainModule, open_module
from infoshot.backbones.registry import BACKBONES, make_backbone
from infoshot.backbones.weight_files import read_weights
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular

_CLASSIFIERS = ("fc.", "linear.", "classifier.")
_KINDS = ("weights", "training", "classifier", "head")


@dataclass(frozen=True, eq=False)
class TrainingState:
    """What a training needs to resume: facts that JSON can hold, and tensors by name."""

    facts: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def save_checkpoint(
    folder: Path,
    backbone_name: str,
    weights: Mapping[str, Tensor],
    *,
    class_names: tuple[str, ...] = (),
    config: Mapping[str, Any] | None = None,
    epoch: int | None = None,
    chosen_as: str = "",
    dtype: torch.dtype = torch.float32,
    training: TrainingState | None = None,
    classifier: Mapping[str, Tensor] | None = None,
    system: StoredSystem | None = None,
) -> str:
    """Write a checkpoint and return the digest of its weights.

    ``weights`` are the backbone's ``state_dict`` after ``epoch`` epochs, ``chosen_as`` the ``best``
    or the ``last`` of a training, ``classifier`` is the ``state_dict`` of the linear layer over its
    features, ``system`` the head of a few-shot system. They are stored in ``dtype``: float16 halves
    the files, int8 (for large convolutions) makes them a quarter.
    """
    make_folder(folder)
    earlier = _recorded_files(folder)
    contents = {"weights": _content(weights, dtype)}
    if training is not None:
        contents["training"] = weights_content(training.tensors)
    if classifier is not None:
        contents["classifier"] = _content(classifier, dtype)
    if system is not None:
        contents["head"] = _content(system.tensors, dtype)
    digests = {kind: hashlib.sha256(content).hexdigest() for kind, content in contents.items()}
    description: dict[str, Any] = {
        "format": FORMAT,
        "backbone": backbone_name,
        "weights_sha256": digests["weights"],
        "class_names": list(class_names),
        "config": dict(config or {}),
        "epoch": epoch,
        "chosen_as": chosen_as,
    }
    if training is not None:
        description["training"] = {**training.facts, "sha256": digests["training"]}
    if classifier is not None:
        description["classifier_sha256"] = digests["classifier"]
    if system is not None:
        head = {"name": system.name, "settings": dict(system.settings), "sha256": digests["head"]}
        description["system"] = head
    files = {
        tensors_path(folder, kind, digests[kind]): content for kind, content in contents.items()
    }
    for path, content in files.items():
        write_atomically(path, content)
    write_atomically(folder / DESCRIPTION_NAME, json.dumps(description, indent=1) + "\n")
    for old, kind in _other_files(folder, files):
        if old in earlier or _is_named_by_content(old, kind):
            old.unlink(missing_ok=True)
    return digests["weights"]


def _content(tensors: Mapping[str, Tensor], dtype: torch.dtype) -> bytes:
    """Return tensors as the bytes of a file; int8 concerns large convolutions only."""
    if dtype == torch.int8:
        return weights_content(quantise_weights(tensors))
    return weights_content(tensors, dtype)


def load_checkpoint(folder: Path) -> Encoder:
    """Read a checkpoint from its folder, or from the description in it.

    The folder of a training run stands for the ``best`` checkpoint in it.

    Raises
    ------
    DataError
        If it is missing, damaged, or its files do not belong together.
    """
    folder = _checkpoint_folder(folder)
    description = read_description(folder)
    digest = description["weights_sha256"]
    files = named_files(folder, description)
    if not all(file.is_file() for file in files) and read_description(folder) != description:
        return load_checkpoint(folder)  # a training replaced it in between
    name = description["backbone"]
    weights = _read_weights(folder, "weights", digest)
    backbone = _load_weights(name, weights, tensors_path(folder, "weights", digest))
    if name not in BACKBONES:  # a user's class: its source code determines the features too
        digest = open_module(backbone, name).digest
    return Encoder(
        name,
        backbone,
        digest,
        tuple(description["class_names"]),
        description["config"],
        _read_classifier(folder, description["classifier_sha256"], backbone.feature_dim),
        description["epoch"],
        description["chosen_as"],
        _read_system(folder, description["system"]),
    )


def system_name(folder: Path) -> str:
    """Return the name of the few-shot system that a checkpoint holds; empty if it holds none."""
    try:
        return str(read_description(_checkpoint_folder(folder))["system"].get("name", ""))
    except DataError:
        return ""


def load_training(folder: Path) -> TrainingState:
    """Read what a training needs to resume.

    Raises
    ------
    DataError
        If it is missing or damaged.
    """
    facts = dict(read_description(folder)["training"])
    if not facts:
        raise DataError(
            f"{folder}: a checkpoint without the state that a training needs to resume."
        )
    digest = facts.pop("sha256")
    return TrainingState(facts, _tensors(tensors_path(folder, "training", digest), digest))


def import_weights(path: Path, backbone_name: str) -> Encoder:
    """Read a PyTorch file of weights, such as the authors' release, into a network by name.

    The file may hold the weights, or a dict with ``state_dict``. Names may start with ``module.``.
    A linear layer over the features in it is the classifier.
    """
    weights = {name.removeprefix("module."): value for name, value in read_weights(path).items()}
    backbone = _load_weights(backbone_name, weights, path, ignored=_CLASSIFIERS)
    if backbone_name not in BACKBONES:
        return open_module(backbone, backbone_name)
    classifier = _find_classifier(weights, backbone.feature_dim)
    return Encoder(backbone_name, backbone, weights_digest(backbone), classifier=classifier)


def _checkpoint_folder(path: Path) -> Path:
    """Return the folder of a checkpoint, its description, or the run that it is the best of."""
    if path.name == DESCRIPTION_NAME:
        return path.parent
    if not (path / DESCRIPTION_NAME).exists() and (path / BEST / DESCRIPTION_NAME).is_file():
        return path / BEST
    return path


def _recorded_files(folder: Path) -> set[Path]:
    """Return the files of the checkpoint that a folder holds now."""
    try:
        return named_files(folder, read_description(folder))
    except DataError:
        return set()


def _other_files(folder: Path, files: Mapping[Path, bytes]) -> list[tuple[Path, str]]:
    """List the files of tensors in a folder that are not among these, and their kinds."""
    found = [(path, kind) for kind in _KINDS for path in folder.glob(f"{kind}-*.safetensors")]
    return [(path, kind) for path, kind in found if path not in files]


def _is_named_by_content(path: Path, kind: str) -> bool:
    """Whether the name of a file has the digest of its content: a killed writer left it."""
    if not path.is_file():
        return False
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path == tensors_path(path.parent, kind, digest)


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """Read a file whose name contains its digest."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        content = read_regular(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(
            f"{path}: truncated or changed; its content does not match the digest in its name."
        )
    try:
        return load(content)
    except Exception as error:  # damaged bytes raise many kinds of errors
        reason = str(error).split("\n", 1)[0][:200]
        raise DataError(f"{path}: damaged ({reason}).") from error


def _read_weights(folder: Path, kind: str, digest: str) -> dict[str, Tensor]:
    """Read weights that may be stored in 8 bits."""
    path = tensors_path(folder, kind, digest)
    try:
        return restore_weights(_tensors(path, digest))
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error}).") from error


def _read_system(folder: Path, stored: Mapping[str, Any]) -> StoredSystem | None:
    """Read the head of a few-shot system, if the checkpoint has one."""
    if not stored:
        return None
    tensors = _read_weights(folder, "head", stored["sha256"])
    return StoredSystem(stored["name"], stored["settings"], tensors, stored["sha256"])


def _read_classifier(folder: Path, digest: str, feature_dim: int) -> dict[str, Tensor] | None:
    """Read weight and bias of the linear classifier, if the checkpoint has one."""
    if not digest:
        return None
    path = tensors_path(folder, "classifier", digest)
    tensors = _tensors(path, digest)
    if not _is_linear_layer(tensors, feature_dim):
        raise DataError(f"{path}: not a linear layer over {feature_dim} features.")
    return {name: value.float() for name, value in tensors.items()}


def _find_classifier(weights: Mapping[str, Tensor], feature_dim: int) -> dict[str, Tensor] | None:
    """Return the linear layer over the features among the weights of a whole network."""
    for prefix in _CLASSIFIERS:
        layer = {
            name.removeprefix(prefix): value.float()
            for name, value in weights.items()
            if name.startswith(prefix) and value.is_floating_point()
        }
        if _is_linear_layer(layer, feature_dim):
            return layer
    return None


def _is_linear_layer(tensors: Mapping[str, Tensor], feature_dim: int) -> bool:
    if tensors.keys() != {"weight", "bias"}:
        return False
    weight, bias = tensors["weight"], tensors["bias"]
    real = weight.is_floating_point() and bias.is_floating_point()
    return real and bias.ndim == 1 and weight.shape == (len(bias), feature_dim)


def _load_weights(
    name: str, weights: Mapping[str, Tensor], path: Path, *, ignored: tuple[str, ...] = ()
) -> Backbone:
    """Build the network and load exactly these weights.

    Weights that the network does not have are skipped if their names start with one of ``ignored``.
    """
    backbone = make_backbone(name)
    network = backbone.module if isinstance(backbone, PlainModule) else backbone
    own = network.state_dict()
    if network is not backbone and not weights.keys() & own.keys():
        # Saved from the backbone, which calls the user's network "module".
        weights = {key.removeprefix("module."): value for key, value in weights.items()}
    weights = {
        key: value for key, value in weights.items() if key in own or not key.startswith(ignored)
    }
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    wrong = sorted(
        key
        for key in own.keys() & weights.keys()
        if own[key].shape != weights[key].shape or weights[key].is_complex()
    )
    if missing or extra or wrong:
        example = (missing + extra + wrong)[0]
        raise DataError(
            f"{path}: not weights of {name}: {len(missing)} missing, {len(extra)} unknown, "
            f"{len(wrong)} of another shape (such as '{example}')."
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:  # such as a type that cannot be converted
        reason = str(error).split("\n", 1)[0][:200]
        raise DataError(f"{path}: not weights of {name} ({reason}).") from error
    return backbone.eval()
