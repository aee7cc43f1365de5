"""Open files for reading without ever waiting for a pipe, a socket or a device."""

import errno
import os
import stat
from io import BufferedReader

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file, or a link to one, for reading.

    Opening a named pipe waits until another process writes to it, and opening a device may do
    anything. So nothing else is opened. The file is checked again after it was opened, without
    waiting, in case it was replaced in between.

    Raises
    ------
    OSError
        If it cannot be opened or is not a regular file; ``strerror`` says which.
    """
    _check(path, os.stat(path))  # noqa: PTH116 - the path may be of any type
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - the caller closes it
    try:
        _check(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def read_regular(path: str | os.PathLike[str], largest: int | None = None) -> bytes:
    """Read a regular file; see :func:`open_regular`.

    Raises
    ------
    OSError
        Also if it has more than ``largest`` bytes.
    """
    with open_regular(path) as file:
        if largest is not None and os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"larger than {largest:,} bytes", os.fspath(path))
        return file.read()


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check(path: str | os.PathLike[str], facts: os.stat_result) -> None:
    kind = stat.S_IFMT(facts.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind != stat.S_IFREG:
        what = f"{_KINDS.get(kind, 'something else')}, not a regular file"
        raise OSError(errno.EINVAL, what, os.fspath(path))
