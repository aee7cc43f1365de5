"""Encoders by one word: ours, a checkpoint, or a network of another package."""

from collections.abc import Callable, Mapping
from pathlib import Path

from infoshot.backbones.checkpoints import (
    DESCRIPTION_NAME,
    Checkpoint,
    load_checkpoint,
    pretrained_checkpoint,
)
from infoshot.backbones.external.hf import open_hf
from infoshot.backbones.external.onnx import open_onnx
from infoshot.backbones.external.timm import open_timm
from infoshot.backbones.registry import PRETRAINED
from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError

_EXTERNAL: Mapping[str, Callable[[str], Checkpoint]] = {
    "hf": open_hf,
    "timm": open_timm,
    "onnx": open_onnx,
}


def open_encoder(spec: str) -> Checkpoint:
    """Open a frozen network that makes features of images.

    Parameters
    ----------
    spec
        A pretrained backbone of ours (``efficientnet-lite0``), the folder of a checkpoint,
        ``hf:`` with the id or folder of a model of transformers, ``timm:`` with the name of a model
        of timm, or ``onnx:`` with a file.

    Raises
    ------
    InvalidArgumentError
        If it is none of these.
    DataError
        If it is one of these, but missing, damaged or no encoder of images.
    MissingDependencyError
        If it needs a package that is not installed.
    """
    kind, _, name = spec.partition(":")
    if kind in _EXTERNAL and name:
        return _EXTERNAL[kind](name)
    if spec in PRETRAINED:
        return pretrained_checkpoint(spec)
    path = Path(spec).expanduser()
    if path.name == DESCRIPTION_NAME:
        path = path.parent
    if path.is_dir():
        return load_checkpoint(path)
    file = f"onnx:{spec}" if path.suffix == ".onnx" else "onnx:FILE"
    known = (*PRETRAINED, "hf:ID", "timm:NAME", file, "FOLDER of a checkpoint")
    raise InvalidArgumentError(unknown_name("encoder", spec, known))
