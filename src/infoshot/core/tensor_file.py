"""Files of tensors with facts beside them: safetensors whose metadata hold one JSON entry.

Everything that this package stores except feature files, checkpoints and the feature cache has
this form. Equal content gives equal bytes: there is a single metadata entry, since safetensors
writes several in any order, and its keys are sorted.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError


def write_tensor_file(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, kind: str
) -> None:
    """Write tensors and facts atomically; see :func:`format_tensors`.

    Parameters
    ----------
    path
        Path of the file; an existing file is replaced.
    tensors, facts, kind
        As in :func:`format_tensors`.
    """
    write_atomically(path, format_tensors(tensors, facts, kind=kind))


def format_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, kind: str) -> bytes:
    """Format tensors and facts as safetensors.

    Parameters
    ----------
    tensors, facts
        Tensors by name, and anything that JSON can hold.
    kind
        What the file is, such as ``"classifier"``; the name of the metadata entry.
    """
    content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    metadata = {kind: json.dumps(dict(facts), sort_keys=True)}
    return save(content, metadata=metadata)


def parse_tensors(
    content: bytes, *, kind: str, path: Path
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Parse what :func:`format_tensors` wrote as the same kind; ``path`` is for messages.

    Raises
    ------
    DataError
        If it is damaged, or of another kind.
    """
    with _one_sentence(path, kind):
        tensors = load(content)  # checks the header
        n_header = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + n_header])
        facts = json.loads(header["__metadata__"][kind])
        return {name: value.clone() for name, value in tensors.items()}, dict(facts)


def read_tensor_file(
    path: Path, *, kind: str, only: tuple[str, ...] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and facts that :func:`write_tensor_file` wrote as the same kind.

    Parameters
    ----------
    path
        The file.
    kind
        What it must be.
    only
        Names of the tensors to read; ``None``: all.

    Raises
    ------
    DataError
        If it is missing, damaged, or of another kind.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    with _one_sentence(path, kind), safe_open(path, framework="pt") as file:
        facts = json.loads((file.metadata() or {})[kind])
        names = file.keys() if only is None else only
        # Copies are aligned alike. Places in the file depend on the length of the facts, and
        # the rounding of products depends on the alignment.
        return {name: file.get_tensor(name).clone() for name in names}, dict(facts)


def fill_tensor(tensor: Tensor, file: BufferedReader, start: int) -> None:
    """Fill a contiguous tensor with the bytes of a file from ``start`` on.

    Plain reads: the memory map of a file that another process truncates would end this process.

    Raises
    ------
    EOFError
        If the file ends before the tensor is full.
    """
    file.seek(start)
    # Buffered readers repeat short reads until the buffer is full or the file ends.
    n_read = file.readinto(tensor.view(-1).view(torch.uint8).numpy().data)
    if n_read < tensor.nbytes:
        raise EOFError(f"it ends after {start + n_read:,} bytes")


def digest_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """Return the sha256 of tensors (names, dtypes, shapes, values) and facts."""
    whole = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        whole.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        whole.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


@contextmanager
def _one_sentence(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a damaged file makes the libraries raise into one sentence."""
    try:
        yield
    except (
        OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError,
        RuntimeError, ArithmeticError, AssertionError, MemoryError,
    ) as error:  # fmt: skip
        reason = str(error).split("\n", 1)[0]
        raise DataError(f"{path}: damaged, or not a {kind} file ({reason}).") from error
