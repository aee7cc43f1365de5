"""Arrays of an ``.npz`` file, each checked before it is read.

An ``.npz`` file is a zip archive of ``.npy`` arrays. A few bytes of such a file can declare arrays
of any size, so the declared size of an array is compared with its shape, with the archive and with
the memory before it is allocated. Nothing is unpickled.
"""

import math
import os
import zipfile
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infoshot.core.memory import total_memory
from infoshot.core.npy_header import array_size, read_npy_header
from infoshot.core.parsing import parser_errors

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those that NumPy writes
_ENCRYPTED = 0x1
# Dense features shrink to a half, sparse ones to a fiftieth. Labels may be all equal, but no array
# is read that has more rows than the features.
_LARGE, _HIGHEST_RATIO = 2**28, 200


@dataclass(frozen=True)
class StoredArray:
    """An array of the archive that has not been read yet."""

    member: zipfile.ZipInfo
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class NpzFile:
    """An open ``.npz`` file; ``members`` are its arrays by name.

    Raises
    ------
    ValueError, OSError
        If it is damaged. The methods raise the same errors.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._size = os.fstat(file.fileno()).st_size
        with parser_errors():
            self._archive = zipfile.ZipFile(file)
        self.members: dict[str, zipfile.ZipInfo] = {}
        for member in self._archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in self.members:
                raise ValueError(f"the array {name!r:.60} occurs twice")
            self.members[name] = member

    def describe(self, name: str) -> StoredArray:
        """Read the header of an array, and compare it with the size of its member."""
        member = self.members[name]
        if member.flag_bits & _ENCRYPTED:
            raise ValueError(f"{name} is encrypted")
        if member.compress_type not in _METHODS:
            raise ValueError(f"{name} is compressed by a method that NumPy does not use")
        if member.compress_size > self._size:
            raise ValueError(f"{name} is larger than the file")
        with parser_errors(), self._archive.open(member) as stream:
            dtype, shape, _ = read_npy_header(stream)
            n_bytes = stream.tell() + array_size(dtype, shape)
        if n_bytes != member.file_size:
            raise ValueError(
                f"{name} has {n_bytes:,} bytes by its shape, {member.file_size:,} by the archive"
            )
        return StoredArray(member, dtype, shape)

    def read(self, array: StoredArray) -> NDArray[Any]:
        """Read an array."""
        name, size = array.member.filename, array.member.file_size
        if size > total_memory():
            raise ValueError(f"{name} is larger than the memory: {size / 1e9:,.0f} GB")
        ratio = math.ceil(size / max(1, array.member.compress_size))
        if size > _LARGE and ratio > _HIGHEST_RATIO:
            raise ValueError(
                f"{name} is compressed {ratio:,} times; numpy.savez writes it without compression"
            )
        with parser_errors(), self._archive.open(array.member) as stream:
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
