"""Shards: files of features that together are one large set of queries.

A shard is a safetensors file with ``features`` [n, D], like a feature file but without labels, or a
``.npy`` file with such an array, in float16 or float32. A shard may be empty. Shards are mapped
into memory: the operating system reads rows when they are used, so that the shards together may be
larger than the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from infoshot.core.errors import DataError

_SUFFIXES = (".safetensors", ".npy")
_ACCEPTED = "a shard is safetensors with features [n, D], or .npy [n, D], in float16 or float32"


@dataclass(frozen=True)
class Shard:
    """A file of features and the shape of its content."""

    path: Path
    n_rows: int
    dim: int
    dtype: torch.dtype

    @property
    def name(self) -> str:
        """Name of the shard without its folder and suffix."""
        return self.path.stem

    def rows(self) -> Tensor:
        """All features, ``(row, dim)``, as a view of the file; copy them before you change them.

        Raises
        ------
        DataError
            If the file has changed since it was opened, or cannot be read.
        """
        rows = _map_rows(self.path)
        if rows.shape != (self.n_rows, self.dim) or rows.dtype != self.dtype:
            raise DataError(f"{self.path}: the file has changed since the solve began.")
        return rows

    def fingerprint(self) -> str:
        """Name, shape, size and time of change: what identifies this version of the shard."""
        facts = self.path.stat()
        shape = f"{self.n_rows} x {self.dim} {_name(self.dtype)}"
        return f"{self.path.name}: {shape}, {facts.st_size} bytes, {facts.st_mtime_ns}"


def find_shards(folder: Path) -> list[Shard]:
    """Open all shards of a folder, sorted by name.

    Raises
    ------
    DataError
        If there are none, a file is not a shard or truncated, or shards do not fit together.
    """
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise DataError(f"{folder}: {what} of shards.")
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in _SUFFIXES and not path.name.startswith(".")
    )
    if not paths:
        raise DataError(f"{folder}: the folder has no shards; {_ACCEPTED}.")
    shards = [open_shard(path) for path in paths]
    _check_together(shards)
    if not sum(shard.n_rows for shard in shards):
        raise DataError(f"{folder}: all shards are empty.")
    return shards


def open_shard(path: Path) -> Shard:
    """Read the shape of a shard from its header.

    Raises
    ------
    DataError
        If the file is not a shard, or truncated.
    """
    rows = _map_rows(path)
    return Shard(path, len(rows), rows.shape[1], rows.dtype)


def _map_rows(path: Path) -> Tensor:
    """Map the features of a shard into memory, ``(row, dim)``."""
    try:
        return _map_npy(path) if path.suffix == ".npy" else _map_safetensors(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (SafetensorError, ValueError) as error:
        raise DataError(
            f"{path}: truncated, damaged or not a shard ({error}); {_ACCEPTED}."
        ) from error


def _map_npy(path: Path) -> Tensor:
    # Mode "c", copy on write: PyTorch warns about arrays that it may not write to.
    array = np.lib.format.open_memmap(path, mode="c")
    _check_features(path, str(array.dtype), array.shape)
    if not array.flags.c_contiguous:
        raise ValueError("columns first; numpy.ascontiguousarray makes rows first")
    return torch.from_numpy(array)


def _map_safetensors(path: Path) -> Tensor:
    with safe_open(path, framework="pt") as file:
        names = sorted(file.keys())
        if "features" not in names:
            raise ValueError(f"no tensor 'features', found {', '.join(names) or 'nothing'}")
        rows: Tensor = file.get_slice("features")[:]  # a view of the mapped file, not a copy
    _check_features(path, _name(rows.dtype), rows.shape)
    return rows


def _check_features(path: Path, dtype: str, shape: Sequence[int]) -> None:
    """Require two axes and a little-endian float16 or float32."""
    if dtype not in ("float16", "float32") or len(shape) != 2 or shape[1] < 1:
        raise DataError(f"{path}: features are {dtype} {list(shape)}; {_ACCEPTED}.")


def _check_together(shards: Sequence[Shard]) -> None:
    """Require equal widths and different names."""
    by_name = {shard.name: shard for shard in shards}
    for shard in shards:
        if shard.dim != shards[0].dim:
            raise DataError(
                f"{shard.path}: has {shard.dim} features per row, but {shards[0].path.name} has "
                f"{shards[0].dim}."
            )
        if by_name[shard.name] is not shard:
            raise DataError(
                f"{shard.path}: {by_name[shard.name].path.name} has the same name; both would "
                "write the same file of labels."
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
