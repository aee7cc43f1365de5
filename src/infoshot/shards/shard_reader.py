"""Shards: files of features that together are one large set of queries.

A shard is a safetensors file with ``features`` [n, D], like a feature file but without labels, or a
``.npy`` file with such an array, in float16 or float32; or Parquet, see ``parquet_shard.py``. A
shard may be empty. Rows are read from the file in blocks whenever they are used, so that the shards
together may be larger than the memory. Every read checks that the file is the one that was opened
at the start. Shards are not mapped into memory: if another process truncated a mapped file, the
next access would end this process without a message.
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
from infoshot.core.places import Place
from infoshot.core.regular_file import open_regular
from infoshot.core.safetensors_header import read_header
from infoshot.core.tensor_file import fill_tensor

ACCEPTED = (
    "a shard is safetensors with features [n, D], or .npy [n, D], in float16 or float32, or "
    "Parquet with a column of embeddings"
)
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
    >>> from infoshot.shards import find_shards
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/part0.npy", np.zeros((3, 2), "float16"))
    ...     shard = find_shards(Path(folder))[0]
    >>> shard.n_rows, shard.dim, shard.dtype
    (3, 2, torch.float16)
    """

    path: Place
    n_rows: int
    dim: int
    dtype: torch.dtype
    start: int
    size: int
    modified: int | str

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
        shape = f"{self.n_rows} x {self.dim} {str(self.dtype).removeprefix('torch.')}"
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
            with open_regular(str(shard.path)) as file:
                for block in blocks:
                    part = rows[first : first + len(block)]
                    fill_tensor(part, file, shard.start + block.start * shard.row_size)
                    first += len(block)
                changed = _version(file) != (shard.size, shard.modified)
        except OSError as error:
            raise cannot_be_read(shard.path, error) from error
        except EOFError:
            changed = True
        if changed:
            raise has_changed(shard.path)
        return rows


@dataclass(frozen=True)
class PickedRows:
    """Some rows of a shard, by number; a slice of them is read into a new tensor."""

    rows: ShardRows
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, some: slice) -> Tensor:
        return self.rows.pick(self.numbers[some])


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
        raise cannot_be_read(path, error) from error
    except ValueError as error:
        raise DataError(
            f"{path}: truncated, damaged or not a shard ({error}); {ACCEPTED}."
        ) from error
    if dtype not in _DTYPES or len(shape) != 2 or shape[1] < 1:
        convert = dtype not in _DTYPES and len(shape) == 2
        advice = "convert them, such as with .astype('float32'); " if convert else ""
        found = f"{dtype:.60} {list(shape)!r:.60}"
        raise DataError(f"{path}: features are {found}; {advice}{ACCEPTED}.")
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


def has_changed(path: Place) -> DataError:
    """Return the error for a shard that is not the one that was opened."""
    return DataError(f"{path}: the file has changed since the solve began.")


def cannot_be_read(path: Place, error: OSError) -> DataError:
    """Return the error for a file that the system does not let us read."""
    return DataError(f"{path}: cannot be read ({error.strerror or error}).")
