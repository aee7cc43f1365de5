"""Write files atomically: they appear complete or not at all."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from infoshot.core.errors import DataError
from infoshot.core.leftovers import end_writing, start_writing, temporary_name

_LOCK_NAME = ".lock"


def write_atomically(
    path: str | os.PathLike[str], content: bytes | str, *, private: bool = False
) -> None:
    """Write ``content`` to ``path`` atomically, so that no reader sees half a file.

    A symbolic link is replaced, and the file that it points to is kept. With ``private`` nobody
    but the owner can read the file at any time. Outputs that users name are written by
    :func:`infoshot.core.outputs.write_output`.

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is kept.
    """
    data = content.encode() if isinstance(content, str) else content
    with _temporary_beside(Path(path)) as temporary:
        if private:
            temporary.touch(mode=0o600, exist_ok=False)
        temporary.write_bytes(data)
        flush(temporary)
        temporary.replace(path)
        flush(Path(path).parent)  # now it also survives power loss


@contextmanager
def open_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears at ``path`` when the block ends, unless it fails.

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is kept.
    """
    with _temporary_beside(path) as temporary:
        with temporary.open("xb") as file:
            yield file
        flush(temporary)
        temporary.replace(path)
        flush(path.parent)


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock a folder for this process, and remove unfinished files of killed processes in it.

    Only what writers of this folder made under temporary names is removed, see
    :mod:`infoshot.core.leftovers`.

    Raises
    ------
    DataError
        If another process has locked it, or it cannot be written to.
    """
    lock = acquire_lock(folder / _LOCK_NAME)
    if lock is None:
        raise DataError(f"{folder}: another process is writing there.")
    try:
        start_writing(folder)
        yield
        end_writing(folder)  # not after an error: other processes of a job may still be writing
    finally:
        lock.release()


def acquire_lock(path: Path) -> FileLock | None:
    """Lock a file, which is created if it does not exist; any thread may release the lock.

    Returns
    -------
    The lock, or ``None`` if it is taken already, by this or by another process.

    Raises
    ------
    DataError
        If the file cannot be opened for writing, or is a link.
    """
    lock = FileLock(path, blocking=False, thread_local=False)  # does not follow links or truncate
    try:
        lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        if path.is_symlink():
            raise DataError(f"{path}: a symbolic link, not a lock file; remove it.") from error
        raise DataError(f"{path.parent}: cannot be written to ({error.strerror}).") from error
    return lock


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist; raise ``DataError`` on failure."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: this folder cannot be created ({error.strerror}).") from error


@contextmanager
def output_folder(path: Path) -> Iterator[None]:
    """Create a folder and its parents; if the block fails, remove those that are still empty.

    Folders that existed before are kept.

    Raises
    ------
    DataError
        If the folder cannot be created.
    """
    made = [
        folder
        for folder in (path, *path.parents)
        if not os.path.lexists(folder)  # Path raises if the name is too long
    ]
    try:
        make_folder(path)
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ``DataError`` if :func:`write_atomically` would fail; nothing is changed."""
    with _temporary_beside(Path(path)) as temporary:
        temporary.touch(exist_ok=False)


def flush(path: Path) -> None:
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
        _check_replaceable(path)
        temporary = temporary_name(path)
        try:
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error


def _check_replaceable(path: Path) -> None:
    """Refuse to replace folders, devices, pipes and sockets."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.EINVAL, "a device, a pipe or a socket, not a file")
