"""Temporary files: names that nobody else uses, and removing those that a killed process left.

The name of a temporary file holds a random token of the process that made it. Processes record
their tokens in the folder that they write to. A file is removed only if it has such a name and its
token is in the record of the folder, so that files of the user and of other programs are kept.
"""

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from infoshot.core.errors import DataError

RECORD_NAME = ".infoshot-writers"
_TOKEN = secrets.token_hex(8)  # of this process and of those that it forks
_TEMPORARY = re.compile(r"\..*\.([0-9a-f]{16})[0-9a-f]{16}\.infoshot-part", re.DOTALL)
_LONGEST = 100  # bytes of the name of a file that its temporary name repeats; 255 are allowed
_LARGEST = 2**20  # bytes of a record that are read
_RECORD_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND  # several processes may add their tokens
_RECORD_FLAGS |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def temporary_name(path: Path) -> Path:
    """Return an unused name beside ``path`` for something that this process makes."""
    start = os.fsencode(path.name)[:_LONGEST].decode(errors="ignore")
    return path.with_name(f".{start}.{_TOKEN}{secrets.token_hex(8)}.infoshot-part")


def record_writer(folder: Path) -> None:
    """Record that this process writes to a folder, so that what it leaves there can be removed.

    If the record cannot be written, what the process leaves is kept.
    """
    with suppress(DataError), _open_record(folder) as record:
        if _TOKEN not in _read_tokens(record):
            _append_token(record)


def start_writing(folder: Path) -> None:
    """Remove what recorded writers have left anywhere in a folder, and record this process.

    Call it only if no other process writes to the folder.

    Raises
    ------
    DataError
        If the record cannot be written, or is a link.
    """
    with _open_record(folder) as record:
        earlier = _read_tokens(record)
        _append_token(record)
        if earlier:
            for path in _find_temporaries(folder, earlier):
                _remove(path)
            os.ftruncate(record, 0)
            _append_token(record)


def end_writing(folder: Path) -> None:
    """Remove the record of a folder: its writers have ended and left nothing."""
    with suppress(OSError):
        (folder / RECORD_NAME).unlink(missing_ok=True)


def _token(name: str) -> str | None:
    """Return the token in a temporary name; ``None`` for other names."""
    match = _TEMPORARY.fullmatch(name)
    return match[1] if match else None


def _find_temporaries(folder: Path, tokens: Collection[str]) -> Iterator[Path]:
    """Find what was made under temporary names with these tokens; links are not followed."""
    for parent, folders, files in os.walk(folder):
        own = {name for name in (*folders, *files) if _token(name) in tokens}
        folders[:] = [name for name in folders if name not in own]
        yield from (Path(parent, name) for name in sorted(own))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _open_record(folder: Path) -> Iterator[int]:
    """Open the record of a folder without following a link."""
    path = folder / RECORD_NAME
    try:
        record = os.open(path, _RECORD_FLAGS, 0o666)
        try:
            facts = os.fstat(record)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                raise OSError(errno.EINVAL, "not a file, or a hard link")
            yield record
        finally:
            os.close(record)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}).") from error


def _read_tokens(record: int) -> set[str]:
    os.lseek(record, 0, os.SEEK_SET)
    return set(re.findall(r"^[0-9a-f]{16}$", os.read(record, _LARGEST).decode("latin-1"), re.M))


def _append_token(record: int) -> None:
    os.write(record, f"{_TOKEN}\n".encode())
