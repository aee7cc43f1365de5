"""PyTorch's files of weights, read as data: tensors by name, and nothing of the file is run.

``torch.load(weights_only=True)`` runs no code of a file either, but some functions that it allows
take as much memory or time as the file says. So the pickle inside is read by
:mod:`infoshot.core.plain_pickle`, and a tensor is built from bytes of the file after its size and
strides have been compared with them. Both formats are read: the zip archives that PyTorch writes
since version 1.6, and the sequence of pickles before.
"""

import io
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.core.plain_pickle import Name, PlainUnpickler, load_plain

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the format before 1.6
_LARGEST_RANK = 8
_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


@dataclass(frozen=True)
class _Kind:
    """The type of the values of a storage."""

    dtype: torch.dtype

    def __call__(self, *_: object) -> None:
        raise pickle.UnpicklingError("it calls a type")


@dataclass(frozen=True)
class _Storage:
    """Values somewhere in the file."""

    key: str
    dtype: torch.dtype
    n_values: int

    @property
    def n_bytes(self) -> int:
        return self.n_values * self.dtype.itemsize


@dataclass(frozen=True)
class _StoredTensor:
    """A tensor whose values have not been read yet."""

    storage: _Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read weights by name, or those under ``state_dict`` of a dict.

    Raises
    ------
    DataError
        If the file is missing, damaged, or holds anything but weights.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            read = _read_zip if zipfile.is_zipfile(file) else _read_sequence
            file.seek(0)
            return read(file, size)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # damaged bytes raise many kinds of errors
        reason = str(error).split("\n", 1)[0][:200] or type(error).__name__
        raise DataError(
            f"{path}: truncated, or not a file of weights that can be read without executing code "
            f"({reason})."
        ) from error


def _read_zip(file: BinaryIO, size: int) -> dict[str, Tensor]:
    """Read the format since PyTorch 1.6: a pickle, and one member of the archive per storage."""
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        pickles = [name for name in members if name.rpartition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            raise ValueError(f"the archive has {len(pickles)} members data.pkl")
        folder = pickles[0].removesuffix("data.pkl")

        def read(name: str) -> bytes:
            member = members[folder + name]
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > size:
                raise ValueError(f"the member {name!r:.80} is compressed")
            return archive.read(member)

        order = read("byteorder") if folder + "byteorder" in members else b"little"
        if order.decode() != sys.byteorder:
            raise ValueError("its numbers have another byte order than this machine")
        content = _unpickle(io.BytesIO(read("data.pkl")), size)
        return _weights(content, lambda storage: read(f"data/{storage.key}"), size)


def _read_sequence(file: BinaryIO, size: int) -> dict[str, Tensor]:
    """Read the format before PyTorch 1.6: five pickles, then the storages in the order of keys."""
    if _unpickle(file, size) != _MAGIC or _unpickle(file, size) != _VERSION:
        raise ValueError("it does not begin as PyTorch's files do")
    facts = _unpickle(file, size)
    if not isinstance(facts, dict) or facts.get("little_endian") != (sys.byteorder == "little"):
        raise ValueError("its numbers have another byte order than this machine")
    storages: dict[str, _Storage] = {}
    content = _unpickle(file, size, storages)
    places = {}
    for key in _unpickle(file, size):
        storage = storages[key]
        (n_values,) = struct.unpack("<q", file.read(8))
        places[key] = file.tell()
        if n_values != storage.n_values or storage.n_bytes > size - file.tell():
            raise ValueError("a storage is truncated")
        file.seek(storage.n_bytes, os.SEEK_CUR)

    def read(storage: _Storage) -> bytes:
        file.seek(places[storage.key])
        return file.read(storage.n_bytes)

    return _weights(content, read, size)


def _unpickle(file: BinaryIO, size: int, storages: dict[str, _Storage] | None = None) -> Any:  # noqa: ANN401
    """Read one pickle; ``storages`` receives those that it mentions."""

    def storage(identifier: object) -> _Storage:
        made = _make_storage(identifier)
        return made if storages is None else storages.setdefault(made.key, made)

    names: dict[tuple[str, str], Callable[..., Any]] = {
        ("torch._utils", "_rebuild_tensor"): _make_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _make_tensor,
        ("torch._utils", "_rebuild_parameter"): _make_parameter,
    }
    for name, dtype in _DTYPES.items():
        names["torch", name] = names["torch.cuda", name] = _Kind(dtype)
    return load_plain(PlainUnpickler(file, size, names=names, persistent=storage))


def _make_storage(identifier: object) -> _Storage:
    """Check ('storage', type, key, device, number of values), and in old files no view."""
    if not isinstance(identifier, tuple) or len(identifier) not in (5, 6):
        raise pickle.UnpicklingError("a storage is not described as PyTorch does")
    word, name, key, _, n_values, *view = identifier
    kind = name.make if isinstance(name, Name) else None
    if word != "storage" or not isinstance(kind, _Kind) or not isinstance(key, str):
        raise pickle.UnpicklingError("a storage is not described as PyTorch does")
    if not _is_size(n_values) or view not in ([], [None]):
        raise pickle.UnpicklingError("the size of a storage is not valid")
    return _Storage(key, kind.dtype, n_values)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**40


def _make_tensor(
    storage: object, offset: object, size: object, stride: object, *_: object
) -> _StoredTensor:
    """Check that all values of a tensor are inside its storage."""
    if not isinstance(storage, _Storage) or type(offset) is not int or offset < 0:
        raise pickle.UnpicklingError("a tensor has no storage")
    if not isinstance(size, tuple) or not isinstance(stride, tuple) or len(size) != len(stride):
        raise pickle.UnpicklingError("a tensor has no shape")
    if len(size) > _LARGEST_RANK or not all(_is_size(n) for n in (*size, *stride)):
        raise pickle.UnpicklingError("the shape of a tensor is not valid")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= storage.n_values:
        raise pickle.UnpicklingError("a tensor is larger than its storage")
    return _StoredTensor(storage, offset, size, stride)


def _make_parameter(tensor: object, *_: object) -> object:
    return tensor


def _weights(content: object, read: Callable[[_Storage], bytes], size: int) -> dict[str, Tensor]:
    """Read the tensors of a dict, each storage once."""
    weights = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(weights, Mapping) or not all(
        isinstance(name, str) and isinstance(value, _StoredTensor)
        for name, value in weights.items()
    ):
        raise DataError("must hold weights by name, or a dict with 'state_dict'.")
    values: dict[_Storage, Tensor] = {}
    for storage in {value.storage for value in weights.values()}:
        if storage.n_bytes > size:
            raise ValueError("a storage is larger than the file")
        size -= storage.n_bytes
        raw = read(storage)
        if len(raw) != storage.n_bytes:
            raise ValueError("a storage is truncated")
        empty = torch.empty(0, dtype=storage.dtype)
        values[storage] = torch.frombuffer(bytearray(raw), dtype=storage.dtype) if raw else empty
    return {
        name: torch.as_strided(values[value.storage], value.size, value.stride, value.offset)
        for name, value in weights.items()
    }
