"""The description of a checkpoint, ``checkpoint.json``, and the files of tensors that it names."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular

DESCRIPTION_NAME = "checkpoint.json"
FORMAT = "infoshot.checkpoint/1"
BEST, LAST = "best", "last"  # the checkpoints of a training run
CONFIG_NAME = "config.toml"  # its settings, which it writes before the first epoch
_LARGEST = 2**28


def read_description(folder: Path) -> dict[str, Any]:
    """Read the description in a folder; fields that it lacks get their defaults.

    Raises
    ------
    DataError
        If it is missing or not valid.
    """
    path = folder / DESCRIPTION_NAME
    if not path.is_file():
        raise DataError(_why_missing(folder))
    try:
        text = read_regular(path, _LARGEST)
        description = {**_OPTIONAL, **json.loads(text)}
        if description["format"] != FORMAT:
            raise KeyError("format")
        for name, is_valid in _FIELDS.items():
            if not is_valid(description[name]):
                raise ValueError(f"'{name}' is not valid")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = repr(error)[:200]
        raise DataError(f"{path}: not the description of a checkpoint ({reason}).") from error
    return {name: description[name] for name in _FIELDS}


def _why_missing(folder: Path) -> str:
    """Return the message for a folder without a description."""
    run = folder.parent if folder.name in (BEST, LAST) else folder
    if (run / CONFIG_NAME).is_file() and not _checkpoints_in(run):
        return (
            f"{run}: no epoch of this training is finished yet, so there is no checkpoint; if it "
            "was interrupted, rerun the training to resume it."
        )
    if not folder.is_dir():
        return f"{folder}: this checkpoint folder does not exist."
    inside = _checkpoints_in(folder)
    hint = f" Did you mean {' or '.join(map(str, inside))}?" if inside else ""
    path = folder / DESCRIPTION_NAME
    return f"{path}: there is no such file, so the folder is not a checkpoint.{hint}"


def _checkpoints_in(folder: Path) -> list[Path]:
    return sorted(found.parent for found in folder.glob(f"*/{DESCRIPTION_NAME}"))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_training(value: object) -> bool:
    return isinstance(value, dict) and (not value or _is_digest(value.get("sha256")))


def _is_system(value: object) -> bool:
    if not isinstance(value, dict) or not value:
        return value == {}
    name, settings = value.get("name"), value.get("settings")
    return isinstance(name, str) and isinstance(settings, dict) and _is_digest(value.get("sha256"))


def _is_epoch(value: object) -> bool:
    return value is None or (type(value) is int and value >= 0)


# Older versions did not write all fields.
_OPTIONAL: Mapping[str, Any] = {
    "training": {},
    "classifier_sha256": "",
    "epoch": None,
    "chosen_as": "",
    "system": {},
}
_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "backbone": lambda value: isinstance(value, str),
    "weights_sha256": _is_digest,
    "class_names": lambda value: (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    ),
    "config": lambda value: isinstance(value, dict),
    "training": _is_training,
    "classifier_sha256": lambda value: value == "" or _is_digest(value),
    "epoch": _is_epoch,
    "chosen_as": lambda value: value in ("", BEST, LAST),
    "system": _is_system,
}


def tensors_path(folder: Path, kind: str, digest: str) -> Path:
    """Return the file of tensors of a kind, named by the digest of its content."""
    return folder / f"{kind}-{digest[:16]}.safetensors"


def named_files(folder: Path, description: Mapping[str, Any]) -> set[Path]:
    """Return the files of tensors that a description names."""
    digests = {
        "weights": description["weights_sha256"],
        "training": description["training"].get("sha256", ""),
        "classifier": description["classifier_sha256"],
        "head": description["system"].get("sha256", ""),
    }
    return {tensors_path(folder, kind, digest) for kind, digest in digests.items() if digest}
