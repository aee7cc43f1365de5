"""Files that appear whole or not at all."""

import os
import uuid
from pathlib import Path

from infoshot.errors import DataError


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Put ``content`` under ``path`` in one move, so that nobody ever sees half a file.

    Raises
    ------
    DataError
        If the file cannot be written; what stood there before stays.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    data = content.encode() if isinstance(content, str) else content
    try:
        try:
            with temporary.open("xb") as file:
                file.write(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error
