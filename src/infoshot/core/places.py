"""Where input files are: paths of this machine, and remote ones such as ``s3://bucket/name``.

Remote files are read through fsspec, which is optional. A place may also be a folder or a pattern
with ``*``, which stand for their files.
"""

import glob
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeAlias

from infoshot.core.errors import (
    DataError,
    InfoshotError,
    InvalidArgumentError,
    MissingDependencyError,
)
from infoshot.core.regular_file import open_regular

_PROTOCOL = r"[A-Za-z][A-Za-z0-9+.-]+"  # longer than the letter of a drive
_URL = re.compile(rf"({_PROTOCOL}::)*{_PROTOCOL}://")
_MAGIC = re.compile(r"[*?[]")
# What tells that a remote file has changed, in the order of preference.
_VERSIONS = (
    "ETag", "etag", "md5Hash", "sha256", "blob_id", "mtime", "LastModified", "last_modified",
    "updated", "created",
)  # fmt: skip


@dataclass(frozen=True)
class RemotePath:
    """A file, folder or pattern that fsspec finds, such as ``s3://bucket/name.parquet``."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.url).name

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return PurePosixPath(self.url).stem

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot."""
        return PurePosixPath(self.url).suffix


Place: TypeAlias = Path | RemotePath
AnyPlace: TypeAlias = str | os.PathLike[str] | RemotePath


def locate(given: AnyPlace) -> Place:
    """Return a path of this machine, or a remote one if it has a protocol.

    Examples
    --------
    >>> locate("s3://bucket/a.parquet").name, locate("folder/a.parquet").name
    ('a.parquet', 'a.parquet')
    """
    if isinstance(given, RemotePath):
        return given
    text = os.fspath(given)
    return RemotePath(text) if _URL.match(text) else Path(text)


@contextmanager
def open_place(place: Place) -> Iterator[BinaryIO]:
    """Open a file for reading.

    Raises
    ------
    DataError
        If a remote file cannot be opened.
    OSError
        If a file of this machine cannot be opened, or is not a regular file.
    """
    if isinstance(place, Path):
        with open_regular(place) as file:
            yield file
        return
    system, path = _system(place)
    opened: BinaryIO = _ask(place, lambda: system.open(path, "rb"))
    with opened:
        yield opened


def find_version(place: Place) -> tuple[int, str]:
    """Return the size of a file, and a text that changes with its content.

    Raises
    ------
    DataError, OSError
        If it cannot be found.
    """
    if isinstance(place, Path):
        facts = place.stat()
        return facts.st_size, str(facts.st_mtime_ns)
    system, path = _system(place)
    info = _ask(place, lambda: system.info(path))
    versions = (str(info[key]) for key in _VERSIONS if info.get(key) is not None)
    return int(info.get("size") or 0), next(versions, "")


def find_files(given: Place, suffixes: Collection[str] = ()) -> list[Place] | None:
    """List the files of a folder or of a pattern, sorted by path.

    Only files with one of the suffixes are listed, if any are given. Hidden files are ignored, and
    so are the subfolders of a folder.

    Returns
    -------
    The files; ``None`` if the place is neither a folder nor a pattern.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    found: list[Place]
    if isinstance(given, RemotePath):
        system, path = _system(given)
        if _ask(given, lambda: system.isdir(path)):
            names = _ask(given, lambda: system.ls(path, detail=False))
        elif _MAGIC.search(path):
            names = _ask(given, lambda: system.glob(path))
        else:
            return None
        found = [RemotePath(system.unstrip_protocol(name)) for name in names]
    elif os.path.isdir(given):  # noqa: PTH112 - Path raises if the name is too long
        try:
            found = list(given.iterdir())
        except OSError as error:
            raise DataError(f"{given}: cannot be read ({error.strerror}).") from error
    elif _MAGIC.search(str(given)) and not os.path.lexists(given):
        found = [Path(name) for name in glob.glob(str(given), recursive=True)]  # noqa: PTH207
    else:
        return None
    return sorted(
        (
            place
            for place in found
            if not place.name.startswith(".") and (not suffixes or place.suffix in suffixes)
        ),
        key=str,
    )


def write_remote(place: RemotePath, content: bytes) -> None:
    """Write a remote file; an existing one is replaced.

    Raises
    ------
    DataError
        If it cannot be written.
    """
    system, path = _system(place)
    _ask(place, lambda: system.pipe_file(path, content), "written")


def local_path(name: str, given: AnyPlace) -> Path:
    """Return a path of this machine; ``name`` is that of the argument.

    Raises
    ------
    InvalidArgumentError
        If the path is remote.
    """
    place = locate(given)
    if isinstance(place, Path):
        return place
    raise InvalidArgumentError(f"{name} must be a path of this machine; got {place}.")


def local_files(given: AnyPlace) -> list[Path]:
    """Return a path of this machine, or the files of its pattern; nothing of a remote one."""
    place = locate(given)
    if isinstance(place, RemotePath):
        return []
    is_folder = os.path.isdir(place)  # noqa: PTH112 - Path raises if the name is too long
    matches = [] if is_folder else find_files(place)
    return [path for path in matches or [place] if isinstance(path, Path)]


def _system(place: RemotePath) -> tuple[Any, str]:
    """Return the file system of fsspec, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependencyError(
            f"{place}: remote paths need fsspec; install it with pip install 'infoshot[remote]'."
        ) from error
    found: tuple[Any, str] = _ask(place, lambda: fsspec.core.url_to_fs(place.url))
    return found


def _ask(place: RemotePath, question: Callable[[], Any], done: str = "read") -> Any:  # noqa: ANN401 - fsspec's answers
    """Turn whatever fsspec and its file systems raise into one sentence."""
    try:
        return question()
    except InfoshotError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{place}: there is no such file.") from error
    except ImportError as error:
        reason = " ".join(str(error).split())[:200].rstrip(". ")
        raise MissingDependencyError(
            f"{place}: a package for this kind of path is missing ({reason})."
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200].rstrip(". ") or type(error).__name__
        raise DataError(f"{place}: cannot be {done} ({reason}).") from error
