"""Shards: files of features that together are one large set of queries.

A shard is a safetensors file with ``features`` [n, D], like a feature file but without labels, or a
``.npy`` file with such an array, in float16 or float32. A shard may be empty. Rows are read from
the file in blocks whenever they are used, so that the shards together may be larger than the
memory. Every read checks that the file is the one that was opened at the start. Shards are not
mapped into memory: if another process truncated a mapped file, the next access would end this
process without a message.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.core.npy_header import array_size, read_npy_header
from infoshot.core.regular_file import open_regular
from infoshot.core.safetensors_header import read_header
from infoshot.core.tensor_file import fill_tensor

_SUFFIXES = (".safetensors", ".npy")
_ACCEPTED = "a shard is safetensors with features [n, D], or .npy [n, D], in float16 or float32"
_DTYPES = {"float16": torch.float16, "float32": torch.float32}
_STORED = {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Shard:
    """A file of features: the shape of its content, and where in the file it starts.

    ``size`` and ``modified`` (in nanoseconds) identify this version of the file.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/part0.npy", np.zeros((3, 2), "float16"))
    ...     shard = find_shards(Path(folder))[0]
    >>> shard.n_rows, shard.dim, shard.dtype
    (3, 2, torch.float16)
    """

    path: Path
    n_rows: int
    dim: int
    dtype: torch.dtype
    start: int
    size: int
    modified: int

    @property
    def name(self) -> str:
        """Name of the shard without its folder and suffix."""
        return self.path.stem

    @property
    def n_bytes(self) -> int:
        """Bytes of its features."""
        return self.n_rows * self.row_size

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        return self.dim * self.dtype.itemsize

    def rows(self) -> "ShardRows":
        """All features, ``(row, dim)``, which are read when they are used.

        Raises
        ------
        DataError
            If the file has changed since it was opened, or cannot be read.
        """
        rows = ShardRows(self)
        rows.read([range(0)])
        return rows

    def fingerprint(self) -> str:
        """Name, shape, size and time of change: what identifies this version of the shard."""
        shape = f"{self.n_rows} x {self.dim} {_name(self.dtype)}"
        return f"{self.path.name}: {shape}, {self.size} bytes, {self.modified}"


@dataclass(frozen=True)
class ShardRows:
    """The rows of a shard; a slice of them is read into a new tensor.

    Raises
    ------
    DataError
        If the file has changed since the shard was opened, or cannot be read.
    """

    shard: Shard

    def __len__(self) -> int:
        return self.shard.n_rows

    def __getitem__(self, some: slice) -> Tensor:
        return self.read([range(self.shard.n_rows)[some]])

    def pick(self, numbers: Sequence[int]) -> Tensor:
        """Read single rows by number."""
        return self.read([range(number, number + 1) for number in numbers])

    def read(self, blocks: Sequence[range]) -> Tensor:
        """Read blocks of consecutive rows into one tensor."""
        shard, first = self.shard, 0
        rows = torch.empty(sum(map(len, blocks)), shard.dim, dtype=shard.dtype)
        try:
            with open_regular(shard.path) as file:
                for block in blocks:
                    part = rows[first : first + len(block)]
                    fill_tensor(part, file, shard.start + block.start * shard.row_size)
                    first += len(block)
                changed = _version(file) != (shard.size, shard.modified)
        except OSError as error:
            raise _cannot_be_read(shard.path, error) from error
        except EOFError:
            changed = True
        if changed:
            raise DataError(f"{shard.path}: the file has changed since the solve began.")
        return rows


def find_shards(folder: Path) -> list[Shard]:
    """Open all shards of a folder, sorted by name.

    Raises
    ------
    DataError
        If there are none, a file is not a shard or truncated, or shards do not fit together.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/part0.npy", np.zeros((3, 2), "float16"))
    ...     [shard.name for shard in find_shards(Path(folder))]
    ['part0']
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
    try:
        with open_regular(path) as file:
            read_place = _place_in_npy if path.suffix == ".npy" else _place_in_safetensors
            dtype, shape, start = read_place(file)
            size, modified = _version(file)
    except OSError as error:
        raise _cannot_be_read(path, error) from error
    except ValueError as error:
        raise DataError(
            f"{path}: truncated, damaged or not a shard ({error}); {_ACCEPTED}."
        ) from error
    if dtype not in _DTYPES or len(shape) != 2 or shape[1] < 1:
        raise DataError(f"{path}: features are {dtype:.60} {list(shape)!r:.60}; {_ACCEPTED}.")
    return Shard(path, *shape, _DTYPES[dtype], start, size, modified)


def _place_in_npy(file: BufferedReader) -> tuple[str, tuple[int, ...], int]:
    """Dtype, shape and start of the array."""
    dtype, shape, columns_first = read_npy_header(file)
    if columns_first and min(shape, default=0) > 1:
        raise ValueError("columns first; numpy.ascontiguousarray makes rows first")
    start, size = file.tell(), _version(file)[0]
    if start + array_size(dtype, shape) != size:
        raise ValueError(
            f"the array has {array_size(dtype, shape):,} bytes by its header, the file has "
            f"{size - start:,}"
        )
    # The text of a dtype in the byte order of other machines begins with ">".
    return str(dtype), shape, start


def _place_in_safetensors(file: BufferedReader) -> tuple[str, tuple[int, ...], int]:
    """Dtype, shape and start of the features."""
    tensors, _ = read_header(file)
    if "features" not in tensors:
        found = ", ".join(repr(name)[1:-1] for name in sorted(tensors)[:10])
        raise ValueError(f"no tensor 'features', found {found or 'nothing':.200}")
    stored = tensors["features"]
    return _STORED.get(stored.dtype, stored.dtype), stored.shape, stored.start


def _version(file: BufferedReader) -> tuple[int, int]:
    """Size and time of change of an open file."""
    facts = os.fstat(file.fileno())
    return facts.st_size, facts.st_mtime_ns


def _cannot_be_read(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error}).")


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
