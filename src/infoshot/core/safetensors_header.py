"""The header of a safetensors file, checked before anything is allocated.

The library of that name maps files into memory. If another process truncates a mapped file, the
next access ends this process without a message. So large files are read with plain reads instead,
and their header is checked here by the rules of the format: eight bytes with the length of the
header, a JSON object with dtype, shape and place of every tensor, and tensors that fill the rest of
the file without holes or overlaps.
"""

import json
import math
import os
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

_LONGEST_HEADER = 100_000_000  # bytes, the limit of the library
_MOST_OBJECTS = 100_000  # JSON objects in a header; each tensor is one
_LARGEST_SIDE = 2**40
_ITEM_SIZES = {
    **dict.fromkeys(("BOOL", "I8", "U8"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64"), 8),
}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is in a file; ``dtype`` as the format names it, such as ``F32``."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    n_bytes: int


def read_header(file: BufferedReader) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Read the tensors and the metadata that a file declares.

    Raises
    ------
    ValueError
        If the header is damaged, or does not fit the size of the file.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError("the header is longer than the file")
    if length > _LONGEST_HEADER:
        raise ValueError(f"the header has {length:,} bytes, more than {_LONGEST_HEADER:,}")
    entries = _parse(file.read(length))
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("the metadata in the header are not texts by name")
    tensors, end = {}, 0
    for name, entry in entries.items():
        tensors[name] = _stored(name, entry, first=8 + length, expected=end)
        end += tensors[name].n_bytes
    if 8 + length + end != size:
        raise ValueError(
            f"the tensors have {end:,} bytes by the header, the file has {size - 8 - length:,}"
        )
    return tensors, metadata


def _parse(text: bytes) -> dict[str, Any]:
    n_objects = 0

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal n_objects
        n_objects += 1
        if n_objects > _MOST_OBJECTS:
            raise ValueError(f"more than {_MOST_OBJECTS:,} entries")
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    try:
        entries = json.loads(text.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header is not JSON of this format: {error}") from error
    if not isinstance(entries, dict):
        raise ValueError("the header is not a JSON object")
    return entries


def _stored(name: str, entry: object, *, first: int, expected: int) -> StoredTensor:
    """Check one entry: its place begins where the previous tensor ends, and fits its shape."""
    wrong = f"the entry of the tensor {name!r:.60} in the header"
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise ValueError(f"{wrong} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not (isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets)):
        raise ValueError(f"{wrong} is damaged")
    if len(offsets) != 2 or offsets[0] != expected or offsets[1] < offsets[0]:
        raise ValueError(
            f"{wrong} has data_offsets {offsets!r:.60}, but the tensor before it ends at {expected}"
        )
    n_bytes = offsets[1] - offsets[0]
    item_size = _ITEM_SIZES.get(dtype)
    if item_size is not None and math.prod(shape) * item_size != n_bytes:
        raise ValueError(f"{wrong} declares {dtype} {shape!r:.60} in {n_bytes} bytes")
    return StoredTensor(dtype, tuple(shape), first + offsets[0], n_bytes)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item <= _LARGEST_SIDE for item in value
    )
