"""Files that appear whole or not at all."""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infoshot.errors import DataError


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Put ``content`` under ``path`` in one move, so that nobody ever sees half a file.

    Raises
    ------
    DataError
        If the file cannot be written; what stood there before stays.
    """
    data = content.encode() if isinstance(content, str) else content
    with _temporary_beside(Path(path)) as temporary:
        temporary.write_bytes(data)
        temporary.replace(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ``DataError`` now if :func:`write_atomically` would fail later; changes nothing."""
    with _temporary_beside(Path(path)) as temporary:
        temporary.touch(exist_ok=False)


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """A name in the same folder that is gone afterwards; failures become one sentence."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error
