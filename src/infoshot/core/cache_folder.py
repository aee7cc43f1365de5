"""The user's cache folder: where it is, who may write to it, and private folders inside it.

Whoever can write to a cache can change features. Its folders are therefore created for their owner
only, and those that others can write to are refused or reported.
"""

import os
import stat
import warnings
from contextlib import suppress
from pathlib import Path

from infoshot.core.atomic import make_folder
from infoshot.core.errors import DataError, InvalidArgumentError, MissingDependencyError

_PRIVATE = 0o700


def default_cache_folder() -> Path:
    """Return ``INFOSHOT_CACHE`` if it is set, else the user's cache folder.

    Raises
    ------
    InvalidArgumentError
        If ``INFOSHOT_CACHE`` names a file.
    MissingDependencyError
        If ``INFOSHOT_CACHE`` is not set and the package that knows the folder is not installed.
    """
    if given := os.environ.get("INFOSHOT_CACHE"):
        if os.path.lexists(given) and not os.path.isdir(given):  # noqa: PTH112 - never raises
            raise InvalidArgumentError(
                f"the environment variable INFOSHOT_CACHE must name a folder; got '{given}'."
            )
        return Path(given)
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise MissingDependencyError(
            "the default cache folder needs the package platformdirs; run: pip install "
            "platformdirs, or name a folder in the environment variable INFOSHOT_CACHE."
        ) from error
    return user_cache_path("infoshot", appauthor=False)


def make_inner_folder(folder: Path) -> None:
    """Create a folder inside a cache, for its owner only; in a shared cache with its permissions.

    Raises
    ------
    DataError
        If it cannot be created.
    """
    root = folder.parent
    make_folder(root.parent)
    try:
        with suppress(FileExistsError):
            root.mkdir(_PRIVATE)
        with suppress(FileExistsError):
            folder.mkdir(_PRIVATE)
            shared = root.stat().st_mode
            if shared & stat.S_IWGRP:
                folder.chmod(stat.S_IMODE(shared) & 0o2770)
    except OSError as error:
        raise DataError(f"{folder}: this folder cannot be created ({error.strerror}).") from error


def check_access(folder: Path, *, warn: bool = True) -> bool:
    """Check who can write to a folder inside a cache, and to the cache; return whether to warn.

    Warns
    -----
    UserWarning
        If ``warn``, and the cache belongs to another user or a group can write to it.

    Raises
    ------
    DataError
        If everyone can write to it.
    """
    if os.name != "posix":
        return False
    for path in (folder.parent, folder):
        try:
            facts, link = path.stat(), path.lstat()
        except OSError:
            continue  # there is nothing to read
        if facts.st_mode & stat.S_IWOTH:
            raise DataError(
                f"{path}: everyone can write to this cache, and so change your features; "
                "withdraw the permission (chmod o-w), or choose a new folder inside it."
            )
        others = {facts.st_uid, link.st_uid} - {0, os.geteuid()}
        if others or facts.st_mode & stat.S_IWGRP:
            if warn:
                warnings.warn(
                    f"{path}: other users can write to this cache, and so change your features; "
                    "use it only if you trust them.",
                    UserWarning,
                    stacklevel=4,
                )
            return True
    return False
