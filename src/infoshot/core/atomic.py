"""Files that appear whole or not at all."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from infoshot.core.errors import DataError


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
        _flush(temporary)
        temporary.replace(path)
        _flush(Path(path).parent)  # now it also survives the machine's going down


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder for this process, and clear away what a killed one left half-written in it.

    Raises
    ------
    DataError
        If another process holds it.
    """
    try:
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise DataError(f"{folder}: cannot be written to ({error.strerror}).") from error
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{folder}: another process is writing there.") from error
        except (ImportError, OSError):
            pass  # an operating system or a file system without such locks
        for leftover in list(folder.rglob(".*.part")):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
        yield


def temporary_name(path: Path) -> Path:
    """A name beside ``path`` that nothing has, and that :func:`sole_writer` clears away."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless it is there; ``DataError`` if that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made a folder ({error.strerror}).") from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ``DataError`` now if :func:`write_atomically` would fail later; changes nothing."""
    with _temporary_beside(Path(path)) as temporary:
        temporary.touch(exist_ok=False)


def check_outputs(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Raise ``DataError`` if an output cannot be written, or would replace what is read.

    An output must not be an input, another output, or a file that lies in a folder of input.
    """
    taken = {path.resolve() for path in inputs}
    for output in outputs:
        if output is None:
            continue
        resolved = output.resolve()
        inside = resolved.exists() and any(path in resolved.parents for path in taken)
        if resolved in taken or inside:
            raise DataError(f"{output}: would replace a file that is read or written already.")
        taken.add(resolved)
        check_writable(output)


def _flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk, where systems let one wait for both."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """A name in the same folder that is gone afterwards; failures become one sentence."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        temporary = temporary_name(path)
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error
