"""Arrow arrays from NumPy arrays and texts, and back.

pyarrow's own conversions import pandas if it is installed, which takes half a second and 25 MB.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


def view_as_numpy(values: "pa.Array") -> NDArray[Any]:
    """View numbers, of which none is null, as an array that cannot be written to.

    Examples
    --------
    >>> import pyarrow as pa
    >>> view_as_numpy(pa.array([1.0, 2.0]))
    array([1., 2.])
    """
    return np.from_dlpack(values)


def view_as_arrow(values: NDArray[Any]) -> "pa.Array":
    """View an array with one axis, which must not be changed afterwards.

    Examples
    --------
    >>> view_as_arrow(np.array([1, 2], np.int32)).to_pylist()
    [1, 2]
    """
    import pyarrow as pa

    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, data])


def copy_texts(texts: Sequence[str]) -> "pa.Array":
    """Copy texts into an array.

    Examples
    --------
    >>> copy_texts(["cat", "", "dog"]).to_pylist()
    ['cat', '', 'dog']
    """
    import pyarrow as pa

    stored = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, stored)], dtype=np.int32)
    places, data = pa.py_buffer(ends), pa.py_buffer(b"".join(stored))
    return pa.StringArray.from_buffers(len(texts), places, data)
