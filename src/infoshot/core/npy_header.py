"""The header of ``.npy`` data, checked before anything is allocated."""

import math
from typing import IO, Any

import numpy as np

from infoshot.core.parsing import parser_errors

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_LONGEST_HEADER = 10_000  # characters; headers of plain arrays have 128
_LARGEST_SIDE = 2**40


def read_npy_header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Read dtype, shape and whether columns come first; the data follow in ``file``.

    Raises
    ------
    ValueError
        If NumPy cannot read the header, or it does not describe a plain array.
    """
    with parser_errors():
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the .npy format is not supported")
        shape, columns_first, dtype = _HEADERS[version](file, max_header_size=_LONGEST_HEADER)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
    if not all(0 <= side <= _LARGEST_SIDE for side in shape):
        raise ValueError(f"the shape {shape!r:.60} is not possible")
    return dtype, tuple(map(int, shape)), columns_first


def array_size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return the number of bytes of an array."""
    return math.prod(shape) * dtype.itemsize
