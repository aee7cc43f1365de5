"""Write files atomically: they appear complete or not at all."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from infoshot.core.errors import DataError


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write ``content`` to ``path`` atomically, so that no reader sees half a file.

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is kept.
    """
    data = content.encode() if isinstance(content, str) else content
    with _temporary_beside(Path(path)) as temporary:
        temporary.write_bytes(data)
        _flush(temporary)
        temporary.replace(path)
        _flush(Path(path).parent)  # now it also survives power loss


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock a folder for this process, and remove unfinished files of killed processes in it.

    Raises
    ------
    DataError
        If another process has locked it, or it cannot be written to.
    """
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise DataError(f"{folder}: another process is writing there.") from error
    except NotImplementedError:
        pass  # a file system without locks
    except OSError as error:
        raise DataError(f"{folder}: cannot be written to ({error.strerror}).") from error
    try:
        for leftover in list(folder.rglob(".*.part")):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def temporary_name(path: Path) -> Path:
    """Return an unused name beside ``path`` that :func:`sole_writer` removes."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist; raise ``DataError`` on failure."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: this folder cannot be created ({error.strerror}).") from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ``DataError`` if :func:`write_atomically` would fail; nothing is changed."""
    with _temporary_beside(Path(path)) as temporary:
        temporary.touch(exist_ok=False)


def check_outputs(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Raise ``DataError`` if an output cannot be written, or would replace an input.

    An output must not be an input, another output, or an existing file in an input folder.
    """
    taken = {path.resolve() for path in inputs}
    for output in outputs:
        if output is None:
            continue
        resolved = output.resolve()
        inside = resolved.exists() and any(path in resolved.parents for path in taken)
        if resolved in taken or inside:
            raise DataError(f"{output}: would replace an input or another output.")
        taken.add(resolved)
        check_writable(output)


def _flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk, where the system supports it."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; turn failures into one sentence."""
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
