"""Files of tensors with facts beside them: safetensors whose metadata hold one JSON entry.

Everything that this package stores except feature files, checkpoints and the feature cache has
this form. Equal
content gives equal bytes: there is a single metadata entry, since safetensors writes several in
any order, and its keys are sorted.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
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
    tensors, facts
        Tensors by name, and anything that JSON can hold.
    kind
        What the file is, such as ``"classifier"``; the name of the metadata entry.
    """
    write_atomically(path, format_tensors(tensors, facts, kind=kind))


def format_tensors(tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, kind: str) -> bytes:
    """Return the content of the file that :func:`write_tensor_file` writes."""
    content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return save(content, metadata={kind: json.dumps(dict(facts), sort_keys=True)})


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
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {})[kind])
            names = file.keys() if only is None else only
            # Copies are aligned alike. Places in the file depend on the length of the facts, and
            # the rounding of products depends on the alignment.
            return {name: file.get_tensor(name).clone() for name in names}, dict(facts)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        reason = str(error).split("\n", 1)[0]
        raise DataError(f"{path}: damaged, or not a {kind} file ({reason}).") from error
