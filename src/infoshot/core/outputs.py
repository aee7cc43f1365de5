"""Outputs that a user names: files, and also pipes and devices such as ``/dev/stdout``.

A file is replaced atomically; if the name is a symbolic link, the link stays and the file that it
points to is replaced. Pipes and character devices are written into, never replaced.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from infoshot.core.atomic import check_writable, write_atomically
from infoshot.core.errors import DataError
from infoshot.core.places import AnyPlace, RemotePath, find_files, locate, write_remote

_MOST_LINKS = 40  # as many as Linux follows
# Pipes that were opened to check for a reader. They stay open until they are written: closing one
# would tell the reader that there is nothing more to read.
_open_pipes: dict[tuple[int, int], int] = {}


def write_output(path: AnyPlace, content: bytes | str) -> None:
    """Write an output that a user names; it may be remote.

    Raises
    ------
    DataError
        If it cannot be written; an existing file is kept.
    """
    place = locate(path)
    if isinstance(place, RemotePath):
        write_remote(place, content.encode() if isinstance(content, str) else content)
        return
    path = place
    if not is_stream(path):
        write_atomically(_target(path), content)
        return
    try:
        with os.fdopen(_open_stream(path), "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error


def check_outputs(inputs: Sequence[Path], outputs: Sequence[Path | None]) -> None:
    """Raise ``DataError`` if an output cannot be written, or would replace an input.

    An output must not be an input, another output, or an existing file in an input folder. A named
    pipe must have a reader.
    """
    taken = {Path(os.path.realpath(path)) for path in inputs}
    for output in outputs:
        if output is None:
            continue
        if is_stream(output):
            _check_stream(output)
            continue
        _check_name(output)
        resolved = Path(os.path.realpath(output))
        inside = resolved.exists() and any(path in resolved.parents for path in taken)
        if resolved in taken or inside:
            raise DataError(f"{output}: would replace an input or another output.")
        taken.add(resolved)
        check_writable(_target(output))


def check_remote_output(given: AnyPlace, out: AnyPlace) -> None:
    """Raise ``DataError`` if a remote output is an input: a file, or one of a folder or pattern."""
    place, target = locate(given), locate(out)
    if isinstance(place, RemotePath) and isinstance(target, RemotePath):
        names = {str(path).replace(":///", "://") for path in [place, *(find_files(place) or ())]}
        if str(target).replace(":///", "://") in names:
            raise DataError(f"{target}: would replace an input.")


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a pipe, a character device, or an open descriptor of this process."""
    if _descriptor(path) is not None:
        return True
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _check_name(path: Path) -> None:
    """Refuse names that no file can have, such as very long ones."""
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be written ({reason}).") from error


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file that a link points to, or the path itself."""
    if not os.path.islink(path):  # noqa: PTH114
        return Path(path)
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise DataError(f"{path}: cannot be written ({os.strerror(errno.ELOOP)}).")
    return target


def _descriptor(path: str | os.PathLike[str]) -> int | None:
    """Return the number of the descriptor that a path such as ``/dev/stdout`` names, or ``None``.

    Opening such a path again would begin at the start of the file that the descriptor writes to.
    """
    own = {os.path.realpath("/dev/fd"), os.path.realpath("/proc/self/fd")}
    place = os.fspath(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(place)
        folder = os.path.realpath(folder or ".")
        if folder in own and name.isdecimal():
            return int(name)
        if not os.path.islink(place):  # noqa: PTH114 - Path raises if the name is too long
            return None
        place = os.path.join(folder, os.readlink(place))  # noqa: PTH115, PTH118
    return None


def _check_stream(path: Path) -> None:
    try:
        number = _descriptor(path)
        if number is not None:
            os.write(number, b"")
        elif path.is_fifo():
            _hold_pipe(path)
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error


def _open_stream(path: str | os.PathLike[str]) -> int:
    number = _descriptor(path)
    if number is not None:
        return os.dup(number)
    if not Path(path).is_fifo():
        return os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    pipe = _open_pipes.pop(_hold_pipe(Path(path)))
    os.set_blocking(pipe, True)
    return pipe


def _hold_pipe(path: Path) -> tuple[int, int]:
    """Open a named pipe unless it is open; return its key among the open pipes."""
    facts = path.stat()
    key = (facts.st_dev, facts.st_ino)
    if key not in _open_pipes:
        try:
            _open_pipes[key] = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            raise OSError(errno.ENXIO, "nobody reads from this pipe") from error
    return key
