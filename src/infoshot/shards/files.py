"""Shards: files of features that together are one large set of queries.

A shard is safetensors with ``features`` [n, D], as in a feature file but with no need of labels, or
``.npy`` with such an array; float16 or float32. Shards are mapped into memory, never read whole, so
that a set may be larger than the memory. A shard may be empty.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from infoshot.core.errors import DataError

SUFFIXES = (".safetensors", ".npy")
_ACCEPTED = "a shard is safetensors with features [n, D], or .npy [n, D], in float16 or float32"
_DTYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
_LONGEST_HEADER = 2**27


@dataclass(frozen=True)
class Shard:
    """Where the features of a shard lie in its file."""

    path: Path
    n_rows: int
    dim: int
    dtype: np.dtype[Any]
    offset: int

    @property
    def name(self) -> str:
        """Name of the shard without its folder and suffix."""
        return self.path.stem

    def rows(self) -> Tensor:
        """All features as a view of the file; copy what is to be changed.

        Raises
        ------
        DataError
            If the file has changed since it was looked at, or cannot be read.
        """
        if self.n_rows == 0:
            return torch.empty(0, self.dim, dtype=torch.from_numpy(np.empty(0, self.dtype)).dtype)
        try:
            # Copy on write only keeps PyTorch from warning that it cannot be written to.
            array = np.memmap(
                self.path, self.dtype, "c", offset=self.offset, shape=(self.n_rows, self.dim)
            )
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read any more ({error}).") from error
        return torch.from_numpy(array)

    def described(self) -> str:
        """What tells this shard from another or from itself changed: name, shape, size, time."""
        facts = self.path.stat()
        shape = f"{self.n_rows} x {self.dim} {self.dtype}"
        return f"{self.path.name}: {shape}, {facts.st_size} bytes, {facts.st_mtime_ns}"


def find_shards(folder: Path) -> list[Shard]:
    """All shards of a folder, by name, after a look at their headers.

    Raises
    ------
    DataError
        If there are none, one is no shard or truncated, or they do not fit together.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {what} of shards.")
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in SUFFIXES and not path.name.startswith(".")
    )
    if not paths:
        raise DataError(f"{folder}: there are no shards in it; {_ACCEPTED}.")
    shards = [open_shard(path) for path in paths]
    for shard in shards:
        if shard.dim != shards[0].dim:
            raise DataError(
                f"{shard.path}: has {shard.dim} features per row, but {shards[0].path.name} has "
                f"{shards[0].dim}."
            )
    stems = {shard.name: shard for shard in shards}
    for shard in shards:
        if stems[shard.name] is not shard:
            raise DataError(
                f"{shard.path}: {stems[shard.name].path.name} has the same name; their results "
                "would be in one file."
            )
    if not sum(shard.n_rows for shard in shards):
        raise DataError(f"{folder}: all shards are empty.")
    return shards


def open_shard(path: Path) -> Shard:
    """Look at the header of a shard.

    Raises
    ------
    DataError
        If it is no shard, or shorter than its header says.
    """
    try:
        with path.open("rb") as file:
            facts = _npy_facts(file) if path.suffix == ".npy" else _safetensors_facts(file)
            size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise DataError(
            f"{path}: truncated, damaged or of another format ({error}); {_ACCEPTED}."
        ) from error
    dtype, shape, offset = facts
    if dtype not in _DTYPES.values() or len(shape) != 2 or shape[1] < 1:
        raise DataError(f"{path}: features are {dtype} {list(shape)}; {_ACCEPTED}.")
    expected = offset + shape[0] * shape[1] * dtype.itemsize
    if size < expected:
        raise DataError(
            f"{path}: truncated; {shape[0]} rows of {shape[1]} features need {expected} bytes, the "
            f"file has {size}."
        )
    return Shard(path, shape[0], shape[1], dtype, offset)


def _npy_facts(file: BinaryIO) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(file)
    if fortran_order:
        raise ValueError("columns first; numpy.ascontiguousarray makes rows first")
    return dtype, shape, file.tell()


def _safetensors_facts(file: BinaryIO) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    length = int.from_bytes(file.read(8), "little")
    if length > _LONGEST_HEADER:
        raise ValueError("no safetensors header")
    header = json.loads(file.read(length))
    if "features" not in header:
        found = ", ".join(sorted(set(header) - {"__metadata__"})) or "nothing"
        raise ValueError(f"no tensor 'features', found {found}")
    entry = header["features"]
    dtype = _DTYPES.get(entry["dtype"], np.dtype("V1"))
    return dtype, tuple(entry["shape"]), 8 + length + entry["data_offsets"][0]
