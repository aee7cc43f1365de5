"""Feature files: safetensors is read and written, ``.npz`` is read.

A file holds ``features`` [N, D] (float), ``labels`` [N] (whole numbers, -1 unlabelled), optionally
``base_mean`` [D] and ``class_names``. In safetensors the names are JSON in the metadata, beside the
provenance. ``.npz`` may also use the keys ``f``, ``y`` and
``base``. To save space ``features`` may be 8-bit whole numbers with one ``features_scale`` per row.
Pickles are never read.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from infoshot.core.checks import check_finite, numeric_tensor
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.outputs import write_output
from infoshot.core.text import check_class_name
from infoshot.core.types import FeatureTable

_ALIASES = {"f": "features", "y": "labels", "base": "base_mean"}
_ACCEPTED = (
    "a feature file is safetensors or .npz with features [N, D] (float16, float32 or float64), "
    "labels [N] (int64, -1 for unlabelled) and optionally base_mean [D]"
)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ZIP_MAGIC = b"PK\x03\x04"


def default_features_path() -> Path:
    """Return the path of the embedded features: mini-ImageNet test classes, ResNet-18."""
    return Path(str(resources.files("infoshot") / "assets" / "mini_test_resnet18.safetensors"))


def read_features(path: str | os.PathLike[str]) -> FeatureTable:
    """Read a feature file.

    Raises
    ------
    DataError
        If the file is missing, damaged, of another format or inconsistent; the message says what
        was found and what is accepted.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: a folder, not a feature file.")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    with path.open("rb") as file:
        magic = file.read(len(_ZIP_MAGIC))
    if not magic:
        raise DataError(f"{path}: the file is empty; {_ACCEPTED}.")
    arrays, metadata = _read_npz(path) if magic == _ZIP_MAGIC else _read_safetensors(path)
    return _table(path, arrays, metadata)


def write_features(path: str | os.PathLike[str], table: FeatureTable) -> None:
    """Write a table as safetensors, atomically; equal tables give equal bytes."""
    tensors = {"features": table.features.contiguous(), "labels": table.labels.contiguous()}
    if table.base_mean is not None:
        tensors["base_mean"] = table.base_mean.clone()
    metadata = {**table.provenance, "class_names": json.dumps(list(table.class_names))}
    write_output(path, _sort_metadata(save(tensors, metadata=metadata)))


def digest(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sort_metadata(content: bytes) -> bytes:
    """Sort the metadata, which safetensors writes in any order."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return arrays, dict(file.metadata() or {})
    except (SafetensorError, ValueError) as error:
        raise DataError(
            f"{path}: truncated, damaged or of another format ({error}); {_ACCEPTED}; "
            "numpy.savez makes one from arrays."
        ) from error


def _read_npz(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    arrays: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            for key in file.files:
                name, array = _ALIASES.get(key, key), file[key]
                if name == "class_names":
                    metadata[name] = json.dumps(np.atleast_1d(array).astype(str).tolist())
                elif isinstance(array, np.ndarray) and array.dtype.kind in "fiub":
                    arrays[name] = numeric_tensor(name, array)
                elif name in ("features", "labels", "base_mean"):
                    raise DataError(
                        f"{path}: {key} must hold numbers (names of classes go into class_names); "
                        f"got {getattr(array, 'dtype', type(array).__name__)}."
                    )
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: truncated, damaged or pickled ({error}); {_ACCEPTED}.") from error
    return arrays, metadata


def _table(path: Path, arrays: dict[str, Tensor], metadata: dict[str, str]) -> FeatureTable:
    """Check what was read and build the table."""
    for name in ("features", "labels"):
        if name not in arrays:
            found = ", ".join(sorted(arrays)) or "nothing"
            raise DataError(f"{path}: the key '{name}' is missing (found {found}); {_ACCEPTED}.")
    features, labels = arrays["features"], arrays["labels"]
    if features.ndim != 2 or 0 in features.shape:
        raise _wrong(path, "features", features, "[N, D] with N and D at least 1")
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.ndim != 1:
        raise _wrong(path, "labels", labels, "whole numbers [N]")
    features, labels = _dequantise(path, arrays), labels.long()
    if len(labels) != len(features):
        raise DataError(
            f"{path}: features and labels must have the same length; "
            f"got {len(features)} and {len(labels)}."
        )
    if int(labels.min()) < -1:
        raise DataError(f"{path}: labels must be at least -1; got {int(labels.min())}.")
    base_mean = arrays.get("base_mean")
    if base_mean is not None and base_mean.shape != (features.shape[1],):
        raise _wrong(path, "base_mean", base_mean, f"[{features.shape[1]}] like the features")
    try:
        check_finite("features", features)
        if base_mean is not None:
            check_finite("base_mean", base_mean)
    except InvalidArgumentError as error:
        raise DataError(f"{path}: {error}") from error
    names = _class_names(path, metadata.pop("class_names", "[]"), int(labels.max()))
    return FeatureTable(features, labels, base_mean, names, metadata)


def _dequantise(path: Path, arrays: Mapping[str, Tensor]) -> Tensor:
    features, scale = arrays["features"], arrays.get("features_scale")
    if features.dtype in _FLOATS:
        return features
    if scale is None or features.element_size() != 1 or scale.shape != features.shape[:1]:
        raise _wrong(path, "features", features, "float16, float32 or float64 [N, D]")
    return features.float() * scale.float().unsqueeze(-1)


def _class_names(path: Path, text: str, highest: int) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}: class_names must be a JSON list of names; got {text!r}."
        ) from error
    if not isinstance(names, list) or (names and len(names) <= highest):
        raise DataError(
            f"{path}: class_names must be a list with a name for each label up to {highest}; "
            f"got {text!r}."
        )
    if len(set(names)) < len(names):
        raise DataError(f"{path}: class_names must differ from each other; got {text!r}.")
    for name in names:
        check_class_name(str(name), path)
    return tuple(str(name) for name in names)


def _wrong(path: Path, name: str, found: Tensor, required: str) -> DataError:
    kind = str(found.dtype).removeprefix("torch.")
    return DataError(f"{path}: {name} must be {required}; got {kind} {list(found.shape)}.")
