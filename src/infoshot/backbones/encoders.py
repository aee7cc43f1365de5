"""Open any encoder: a pretrained network, a checkpoint, a module, a model of another package."""

import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

from torch import nn

from infoshot.backbones.backbone import Encoder, weights_digest
from infoshot.backbones.checkpoint_description import DESCRIPTION_NAME
from infoshot.backbones.checkpoints import import_weights, load_checkpoint
from infoshot.backbones.external.hf import open_hf
from infoshot.backbones.external.onnx import open_onnx
from infoshot.backbones.external.plain_module import open_module
from infoshot.backbones.external.timm import open_timm
from infoshot.backbones.registry import (
    BACKBONES,
    ENTRY_POINTS,
    PRESETS,
    PRETRAINED,
    make_backbone,
)
from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.plugins import is_reference, list_entry_points

EncoderLike = str | PathLike[str] | nn.Module | Encoder
"""What :func:`infoshot.open_encoder` opens.

Examples
--------
>>> from infoshot.backbones import EncoderLike, open_encoder
>>> def count_features(encoder: EncoderLike) -> int:
...     return open_encoder(encoder).backbone.feature_dim
>>> count_features("efficientnet-lite0")
1280
"""
_EXTERNAL: Mapping[str, Callable[[str], Encoder]] = {
    "hf": open_hf,
    "timm": open_timm,
    "onnx": open_onnx,
}


def open_encoder(encoder: EncoderLike, *, weights: str | PathLike[str] | None = None) -> Encoder:
    """Open a frozen network that maps images to features.

    Parameters
    ----------
    encoder
        One of

        - the name of a pretrained network: ``"efficientnet-lite0"``, ``"efficientnet-lite2"``;
        - the short name of a model of the Hugging Face hub: ``"dinov2-small"``, ``"dinov2-base"``,
          ``"siglip-base"``, ``"clip-vit-b32"``;
        - the folder of a checkpoint that :func:`infoshot.train` wrote;
        - ``"hf:ID"``, a vision model of transformers by its id or folder;
        - ``"timm:NAME"``, a model of timm;
        - ``"onnx:FILE"``, an ONNX file;
        - ``"package.module:Name"``, a ``torch.nn.Module`` or a function or class that returns one;
        - a name that an installed package registers under ``infoshot.encoders``;
        - a ``torch.nn.Module`` that maps ``[batch, 3, H, W]`` to ``[batch, dim]``; it is put into
          evaluation mode, and encoding moves it to the device;
        - an encoder that is open already.
    weights
        A PyTorch file with weights for the network that ``encoder`` names, such as those the
        authors of TIM released.

    Returns
    -------
    The network with its name and the digest of its weights.

    Raises
    ------
    InvalidArgumentError
        If ``encoder`` is none of these.
    DataError
        If it is one of these, but missing, damaged or not an encoder of images.
    MissingDependencyError
        If it needs a package that is not installed.

    Examples
    --------
    >>> encoder = open_encoder("efficientnet-lite0")
    >>> encoder.backbone.feature_dim
    1280
    """
    if isinstance(encoder, Encoder | nn.Module):
        if weights is not None:
            raise InvalidArgumentError(
                "weights must be None for a module, which has its own; pass the name of a network."
            )
        return encoder if isinstance(encoder, Encoder) else open_module(encoder)
    name = str(encoder)
    if weights is not None:
        return import_weights(Path(weights), name)
    kind, _, rest = PRESETS.get(name, name).partition(":")
    if kind in _EXTERNAL and rest:
        return _EXTERNAL[kind](rest)
    if name in PRETRAINED:
        backbone = PRETRAINED[name]()
        return Encoder(name, backbone, weights_digest(backbone))
    path = Path(os.path.expanduser(name))  # noqa: PTH111 - Path raises for unknown users
    if os.path.isdir(path) or path.name == DESCRIPTION_NAME:  # noqa: PTH112 - as above
        return load_checkpoint(path)
    if name in list_entry_points(ENTRY_POINTS) or is_reference(name):
        return open_module(make_backbone(name), name)
    if name in BACKBONES:
        raise InvalidArgumentError(
            f"'{name}' has no pretrained weights; train it first, and pass the folder of the "
            "checkpoint or a file with its weights."
        )
    file = f"onnx:{name}" if path.suffix == ".onnx" else "onnx:FILE"
    known = (
        *PRETRAINED,
        *PRESETS,
        *list_entry_points(ENTRY_POINTS),
        "hf:ID",
        "timm:NAME",
        file,
        "package.module:Name",
        "the folder of a checkpoint",
    )
    raise InvalidArgumentError(unknown_name("encoder", name, known))


def open_checkpoint(
    checkpoint: str | PathLike[str], backbone: EncoderLike | None = None
) -> Encoder:
    """Open a trained network: a checkpoint, a training run, or a PyTorch file of weights.

    Parameters
    ----------
    checkpoint
        The folder of a checkpoint, the folder of a training run (its ``best`` checkpoint), or a
        PyTorch file of weights.
    backbone
        The network that the weights belong to, which a PyTorch file does not record.

    Raises
    ------
    InvalidArgumentError
        If ``backbone`` is missing, or not the network of the checkpoint.
    DataError
        If the checkpoint is missing or damaged.

    Examples
    --------
    >>> encoder = open_checkpoint("runs/conv4")
    >>> encoder.backbone_name, encoder.chosen_as
    ('conv4', 'best')
    """
    path = Path(checkpoint)
    if is_weight_file(path):
        if backbone is None:
            raise InvalidArgumentError(
                f"{checkpoint} does not record its network; pass backbone=NAME as well."
            )
        return open_encoder(backbone, weights=path)
    encoder = load_checkpoint(path)
    if backbone is not None and backbone != encoder.backbone_name:
        raise InvalidArgumentError(
            f"backbone must be {encoder.backbone_name}, which {checkpoint} records, or None."
        )
    return encoder


def is_weight_file(path: Path) -> bool:
    """Whether a path names a PyTorch file of weights and not a checkpoint."""
    return path.is_file() and path.name != DESCRIPTION_NAME
