"""Feature files: safetensors is read and written, ``.npz`` and Parquet are read.

A file holds ``features`` [N, D] (float), ``labels`` [N] (whole numbers, -1 unlabelled), optionally
``base_mean`` [D], ``base_scatter`` [R, D] and ``class_names``. In safetensors the names are JSON in
the metadata, beside the provenance. ``.npz`` may also use the keys ``f``, ``y`` and ``base``. To
save space ``features`` may be 8-bit whole numbers with one ``features_scale`` per row, or
``features_4bit`` may take their place, see ``four_bits.py``. Types and shapes are checked before an
array is read. Pickles are never read. Parquet files have columns instead, see ``parquet_table.py``.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from io import BufferedReader
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from infoshot.core import embedding_column
from infoshot.core.checks import check_finite, numeric_tensor
from infoshot.core.errors import DataError, InfoshotError, InvalidArgumentError
from infoshot.core.memory import total_memory
from infoshot.core.outputs import write_output
from infoshot.core.parsing import parser_errors
from infoshot.core.places import AnyPlace, Place, find_files, locate, open_place
from infoshot.core.regular_file import open_regular
from infoshot.core.safetensors_header import StoredTensor, read_header
from infoshot.core.tensor_file import fill_tensor
from infoshot.core.text import check_class_name
from infoshot.core.types import FeatureTable
from infoshot.features.four_bits import unpack
from infoshot.features.npz_file import NpzFile, StoredArray
from infoshot.features.parquet_places import find_parquet
from infoshot.features.parquet_table import read_parquet_table

_ALIASES = {"f": "features", "y": "labels", "base": "base_mean"}
_BASE = ("base_mean", "base_scatter")
_TENSORS = ("features", "labels", *_BASE, "features_scale", "features_4bit")
_ACCEPTED = (
    "a feature file is safetensors or .npz with features [N, D] (float16, float32 or float64), "
    "labels [N] (int64, -1 for unlabelled) and optionally base_mean [D], or Parquet with columns "
    "of embeddings and labels"
)
_ZIP_MAGIC = b"PK\x03\x04"
_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
_WHOLE = {
    f"{kind}{bits}": f"{name}{bits}"
    for kind, name in (("I", "int"), ("U", "uint"))
    for bits in (8, 16, 32, 64)
}
_DTYPES = {**_FLOATS, **_WHOLE, "BOOL": "bool"}  # names in safetensors -> in PyTorch and NumPy
_MOST_NAMES, _LONGEST_NAME = 2**20, 1000
_LARGEST_NAMES = 2**27  # bytes of an array of names


@dataclass(frozen=True)
class _Array:
    """An array of a file that has not been read yet."""

    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], Tensor]

    @property
    def is_float(self) -> bool:
        return self.dtype in _FLOATS.values()

    @property
    def is_whole(self) -> bool:
        return self.dtype in _WHOLE.values()


@dataclass(frozen=True)
class _Content:
    """What a file declares: the arrays of a table, the other names, metadata and class names."""

    arrays: Mapping[str, _Array]
    others: Sequence[str]
    metadata: dict[str, str]
    class_names: object = ()


def default_features_path() -> Path:
    """Return the path of the embedded features: mini-ImageNet test classes, ResNet-18.

    >>> default_features_path().name
    'mini_test_resnet18.safetensors'
    """
    return Path(str(resources.files("infoshot") / "assets" / "mini_test_resnet18.safetensors"))


def read_features(
    path: AnyPlace, *, column: str | None = None, label_column: str | None = None
) -> FeatureTable:
    """Read a feature file.

    Parameters
    ----------
    path
        The file; a folder or a pattern such as ``parts/*.parquet`` stands for its Parquet files.
        Parquet may also be remote, such as ``s3://bucket/name.parquet``.
    column
        Column of the embeddings in Parquet; ``None``: the only one of lists of floating-point
        numbers.
    label_column
        Column of the labels in Parquet; ``None``: ``label``, or ``labels``.

    Raises
    ------
    DataError
        If the file is missing, damaged, of another format or inconsistent; the message says what
        was found and what is accepted.

    Examples
    --------
    >>> read_features(default_features_path()).features.shape
    torch.Size([12000, 512])
    """
    place, magic = locate(path), b""
    try:
        is_file = os.path.isfile(str(place))  # noqa: PTH113 - Path raises if the name is too long
        places = None if is_file else find_parquet(place)
        if places is None:
            with open_regular(str(place)) as file:
                magic = file.read(len(_ZIP_MAGIC))
                if magic != embedding_column.MAGIC:
                    check_no_columns(place, column=column, label_column=label_column)
                    return _read_arrays(place, file, magic)
        table = read_parquet_table(places or [place], column=column, label_column=label_column)
        check_names(place, table.class_names, int(table.labels.max()))
        return table
    except InfoshotError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, EOFError) as error:
        kind = "pickled" if magic == _ZIP_MAGIC else "of another format"
        hint = "" if magic == _ZIP_MAGIC else "; numpy.savez makes one from arrays"
        raise DataError(
            f"{path}: truncated, damaged or {kind} ({error}); {_ACCEPTED}{hint}."
        ) from error


def _read_arrays(place: Place, file: BufferedReader, magic: bytes) -> FeatureTable:
    if not magic:
        raise DataError(f"{place}: the file is empty; {_ACCEPTED}.")
    content = _open_npz(file) if magic == _ZIP_MAGIC else _open_safetensors(file)
    return _read_table(place, content)


def write_features(path: str | os.PathLike[str], table: FeatureTable) -> None:
    """Write a table as safetensors, atomically; equal tables give equal bytes.

    Its other ``columns`` are not stored.

    >>> write_features("data.safetensors", FeatureTable(torch.eye(2), torch.tensor([0, 1])))
    """
    check_names(Path(path), list(table.class_names), -1)
    tensors = {"features": table.features.contiguous(), "labels": table.labels.contiguous()}
    for name in _BASE:
        if (values := getattr(table, name)) is not None:
            tensors[name] = values.clone()
    metadata = {**table.provenance, "class_names": json.dumps(list(table.class_names))}
    write_output(path, _sort_metadata(save(tensors, metadata=metadata)))


def digest(path: AnyPlace) -> str:
    """Return the sha256 of a file's content, in hexadecimal.

    That of several Parquet files is the sha256 of their names and digests.

    >>> len(digest(default_features_path()))
    64
    """
    place = locate(path)
    places = find_files(place, [embedding_column.SUFFIX])
    if places is None:
        with open_place(place) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    lines = [f"{part.name} {digest(part)}\n" for part in places]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def check_no_columns(what: Place | str, **columns: str | None) -> None:
    """Raise ``InvalidArgumentError`` if columns are given for something that is not Parquet."""
    for name, value in columns.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{name} must be left out for {what}, which is not a Parquet file; got {value!r}."
            )


def _sort_metadata(content: bytes) -> bytes:
    """Sort the metadata, which safetensors writes in any order."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def _open_safetensors(file: BufferedReader) -> _Content:
    stored, metadata = read_header(file)

    def read(tensor: StoredTensor) -> Tensor:
        dtype: torch.dtype = getattr(torch, _DTYPES[tensor.dtype])
        values = torch.empty(tensor.shape, dtype=dtype)
        fill_tensor(values, file, tensor.start)
        return values

    arrays = {
        name: _Array(_DTYPES.get(it.dtype, it.dtype), it.shape, partial(read, it))
        for name, it in stored.items()
        if name in _TENSORS
    }
    if sum(stored[name].n_bytes for name in arrays) > total_memory():
        raise ValueError("the arrays are larger than the memory")
    others = [name for name in stored if name not in _TENSORS]
    text = metadata.pop("class_names", "[]")
    try:
        with parser_errors():
            names = json.loads(text)
    except ValueError:
        names = text
    return _Content(arrays, others, metadata, names)


def _open_npz(file: BufferedReader) -> _Content:
    archive = NpzFile(file)
    arrays, others, names = dict[str, _Array](), list[str](), list[str]()

    def read(name: str, array: StoredArray) -> Tensor:
        return numeric_tensor(name, archive.read(array))

    for key in archive.members:
        name = _ALIASES.get(key, key)
        if name in arrays:
            raise ValueError(f"{name} occurs twice")
        if name == "class_names":
            names = _read_names(archive, archive.describe(key))
        elif name in _TENSORS:
            it = archive.describe(key)
            dtype = "float64" if it.dtype == np.longdouble else it.dtype.name
            kind = dtype if it.dtype.kind in "fiub" else str(it.dtype)
            arrays[name] = _Array(kind, it.shape, partial(read, name, it))
        elif archive.members[key].filename.endswith(".npy"):
            others.append(key)
    return _Content(arrays, others, {}, names)


def _read_names(archive: NpzFile, array: StoredArray) -> list[str]:
    """Read names of classes; whole numbers may be names too."""
    if array.dtype.kind not in "USiu" or len(array.shape) > 1:
        raise ValueError(f"class_names are {array.dtype} {list(array.shape)}, not a list of names")
    if array.member.file_size > _LARGEST_NAMES:
        raise ValueError(f"class_names has more than {_LARGEST_NAMES:,} bytes")
    names = np.atleast_1d(archive.read(array))
    with parser_errors():
        return [str(name) for name in names.astype(str).tolist()]


def _read_table(path: Place, content: _Content) -> FeatureTable:
    """Check what the file declares, read it, check it, and build the table."""
    arrays = _with_unpacked(path, content.arrays)
    _check_keys(path, content, arrays)
    _check_kinds(path, arrays)
    _check_shapes(path, arrays)
    features, labels = _read_scaled(arrays), arrays["labels"].read()
    if labels.dtype == torch.uint64 and bool((labels.view(torch.int64) < 0).any()):
        raise DataError(f"{path}: labels must be below 2**63.")
    labels = labels.long()
    if int(labels.min()) < -1:
        raise DataError(f"{path}: labels must be at least -1; got {int(labels.min())}.")
    base = {name: arrays[name].read() for name in _BASE if name in arrays}
    try:
        for name, values in {"features": features, **base}.items():
            check_finite(name, values)
    except InvalidArgumentError as error:
        raise DataError(f"{path}: {error}") from error
    names = check_names(path, content.class_names, int(labels.max()))
    return FeatureTable(features, labels, class_names=names, provenance=content.metadata, **base)


def _with_unpacked(path: Place, arrays: Mapping[str, _Array]) -> Mapping[str, _Array]:
    """Replace features in four bits by an array that unpacks them when it is read."""
    if "features_4bit" not in arrays:
        return arrays
    if "features" in arrays:
        raise DataError(f"{path}: holds features twice, as features and as features_4bit.")
    packed, scale = arrays["features_4bit"], arrays.get("features_scale")
    if packed.dtype != "uint8" or len(packed.shape) != 2:
        raise _wrong(path, "features_4bit", packed, "uint8 [N, D / 2]")
    if scale is None or not scale.is_float or scale.shape != packed.shape[:1]:
        raise DataError(f"{path}: features_4bit need features_scale, a float for each row.")

    def read() -> Tensor:
        return unpack(packed.read(), scale.read())

    n_rows, width = packed.shape
    others = {name: array for name, array in arrays.items() if name != "features_4bit"}
    return {**others, "features": _Array("float32", (n_rows, 2 * width), read)}


def _check_keys(path: Place, content: _Content, arrays: Mapping[str, _Array]) -> None:
    for name in ("features", "labels"):
        if name not in arrays:
            keys = sorted([*content.arrays, *content.others])[:10]
            found = f"{', '.join(repr(key)[1:-1] for key in keys) or 'nothing':.200}"
            raise DataError(f"{path}: the key '{name}' is missing (found {found}); {_ACCEPTED}.")


def _check_kinds(path: Place, arrays: Mapping[str, _Array]) -> None:
    """Require numbers of common types."""
    for name, array in arrays.items():
        if array.is_float or array.is_whole or array.dtype == "bool":
            continue
        if name == "labels":
            raise DataError(
                f"{path}: labels must hold numbers (names of classes go into class_names); "
                f"got {array.dtype:.60}."
            )
        raise _wrong(path, name, array, "float16, float32 or float64")


def _check_shapes(path: Place, arrays: Mapping[str, _Array]) -> None:
    """Require shapes that fit together, and the type that each array needs."""
    features, labels = arrays["features"], arrays["labels"]
    if len(features.shape) != 2 or 0 in features.shape:
        raise _wrong(path, "features", features, "[N, D] with N and D at least 1")
    if not labels.is_whole or len(labels.shape) != 1:
        raise _wrong(path, "labels", labels, "whole numbers [N]")
    n_rows, dim = features.shape
    scale = arrays.get("features_scale")
    is_scaled = scale is not None and scale.shape == (n_rows,) and scale.is_float
    if not features.is_float and not (features.dtype in ("int8", "uint8") and is_scaled):
        advice = " (convert integers with .astype('float32'))" if features.is_whole else ""
        raise _wrong(path, "features", features, f"float16, float32 or float64 [N, D]{advice}")
    if labels.shape != (n_rows,):
        raise DataError(
            f"{path}: features and labels must have the same length; "
            f"got {n_rows} and {labels.shape[0]}."
        )
    base_mean, scatter = (arrays.get(name) for name in _BASE)
    if base_mean is not None and base_mean.shape != (dim,):
        raise _wrong(path, "base_mean", base_mean, f"[{dim}] like the features")
    if scatter is not None and not (
        len(scatter.shape) == 2 and scatter.shape[1] == dim and 0 < scatter.shape[0] <= dim
    ):
        raise _wrong(path, "base_scatter", scatter, f"[R, {dim}] with at most {dim} rows")


def _read_scaled(arrays: Mapping[str, _Array]) -> Tensor:
    features = arrays["features"].read()
    if features.is_floating_point():
        return features
    return features.float() * arrays["features_scale"].read().float().unsqueeze(-1)


def check_names(path: Place | str, names: object, highest: int) -> tuple[str, ...]:
    """Require a list of different names, one for each label, if there are any.

    Raises
    ------
    DataError
        If they are something else.
    """
    got = f"{names!r:.80}"
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: class_names must be a JSON list of names; got {got}.")
    if names and len(names) <= highest:
        raise DataError(
            f"{path}: class_names must be a list with a name for each label up to {highest}; "
            f"got {got}."
        )
    if len(set(names)) < len(names):
        raise DataError(f"{path}: class_names must differ from each other; got {got}.")
    for number, name in enumerate(names):
        if number >= _MOST_NAMES or len(name) > _LONGEST_NAME:
            raise DataError(
                f"{path}: class_names may have {_MOST_NAMES:,} names of at most {_LONGEST_NAME} "
                f"characters; number {number} is {name!a:.80}."
            )
        check_class_name(name, path)
    return tuple(names)


def _wrong(path: Place, name: str, found: _Array, required: str) -> DataError:
    shape = f"{list(found.shape)!r:.60}"
    return DataError(f"{path}: {name} must be {required}; got {found.dtype:.60} {shape}.")
