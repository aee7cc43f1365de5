"""Export folders: they appear complete or not at all, and replace only earlier exports.

A marker file in the folder records every link, file and folder that was exported, with the target
of links and the digest of files. Only what is still as recorded is replaced. Hidden files are not
part of an export and stay where they are.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError
from infoshot.core.leftovers import temporary_name
from infoshot.labelling.decide import ImageLabel

MARKER = ".infoshot-export"
_FOLDER, _FILE, _LINK, _ANY = "folder", "file", "link", ""
_TITLE = "Exported by InfoShot"


@dataclass(frozen=True)
class _Entry:
    """What is exported under a path: the target of a link, the digest of a file, or a folder."""

    path: str
    kind: str
    content: str = ""


@dataclass(frozen=True)
class _Content:
    """The entries of a folder, and its folders in which hidden files are, itself included."""

    entries: frozenset[_Entry]
    with_hidden: frozenset[Path]


@contextmanager
def whole_folder(folder: Path, photos: Sequence[ImageLabel], model_version: str) -> Iterator[Path]:
    """Yield a temporary folder to fill; its content then replaces that of an earlier export.

    Parameters
    ----------
    folder
        Where to export to.
    photos
        The images that are exported.
    model_version
        The name of the labeller.

    Raises
    ------
    DataError
        If the folder contains other files, or cannot be written; nothing is changed then.
    """
    folder = folder.resolve()
    new, old = temporary_name(folder), temporary_name(folder)
    try:
        if folder.is_dir() and any(_real(photo.file).is_relative_to(folder) for photo in photos):
            raise DataError(f"{folder}: the export would replace the images themselves.")
        _check_replaceable(folder)
        new.mkdir(parents=True)
        yield new
        made = _read_content(new).entries
        if not folder.exists():
            _write_marker(new, model_version, made)
            new.rename(folder)
        else:
            before = _check_replaceable(folder)
            _write_marker(folder, model_version, before.entries | made)  # if it is killed meanwhile
            old.mkdir()
            _exchange(folder, new, old, before.with_hidden)
            _write_marker(folder, model_version, made)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def check_export(folder: Path) -> None:
    """Raise ``DataError`` if a folder holds anything but an earlier export and hidden files."""
    _check_replaceable(folder.resolve())


def put(photo: ImageLabel, place: Path) -> None:
    """Make a relative link to an image, or copy it if links are not possible."""
    source = _real(photo.file)
    try:
        place.symlink_to(os.path.relpath(source, place.parent))
    except (OSError, ValueError):  # no permission, or on another drive
        with source.open("rb") as read, place.open("xb") as written:  # does not follow links
            shutil.copyfileobj(read, written)


def _real(file: Path) -> Path:
    """Resolve links in the folder of a file, since ``..`` does not work through links."""
    return file.parent.resolve() / file.name


def _check_replaceable(folder: Path) -> _Content:
    """Return the content of an export folder; refuse one that contains anything else.

    Raises
    ------
    DataError
        If the folder contains files that are not hidden and that no export wrote, or that were
        changed since.
    """
    if not folder.exists():
        return _Content(frozenset(), frozenset())
    if not folder.is_dir():
        raise DataError(f"{folder}: a file; an export needs a folder.")
    try:
        content, known = _read_content(folder), _read_marker(folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from error
    paths = {entry.path for entry in known}
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    known |= {_Entry(path, _FOLDER) for path in folders}
    others = sorted(
        entry.path
        for entry in content.entries - known
        if entry.kind == _FOLDER or _Entry(entry.path, _ANY) not in known
    )
    if changed := [path for path in others if path in paths | folders]:
        raise DataError(
            f"{folder}: '{changed[0]}' was changed since the export; move it, or export to another "
            "folder."
        )
    if others:
        raise DataError(
            f"{folder}: contains {len(others)} files that are not part of an export, such as "
            f"'{others[0]}'; move them, or export to another folder."
        )
    return content


def _read_content(folder: Path) -> _Content:
    """List everything in a folder without following links; hidden things are not entries."""
    entries, with_hidden = set[_Entry](), set[Path]()
    for parent, folders, files in os.walk(folder, onerror=_stop):
        for name in (*folders, *files):
            path = Path(parent, name)
            if not name.startswith("."):
                entries.add(_entry(path, path.relative_to(folder).as_posix()))
            elif path != folder / MARKER:
                with_hidden.update((path.parent, *path.parent.parents))
        folders[:] = [name for name in folders if not name.startswith(".")]
    return _Content(frozenset(entries), frozenset(with_hidden))


def _stop(error: OSError) -> None:
    raise error


def _entry(path: Path, name: str) -> _Entry:
    if path.is_symlink():
        return _Entry(name, _LINK, os.readlink(path))  # noqa: PTH115 - exactly as it is stored
    if path.is_dir():
        return _Entry(name, _FOLDER)
    if not path.is_file():
        return _Entry(name, "device or pipe")
    with path.open("rb") as file:
        return _Entry(name, _FILE, hashlib.file_digest(file, "sha256").hexdigest())


def _write_marker(folder: Path, model_version: str, entries: frozenset[_Entry]) -> None:
    lines = sorted(json.dumps([entry.path, entry.kind, entry.content]) for entry in entries)
    text = "\n".join((f"{_TITLE} ({model_version}):", *lines))
    write_atomically(folder / MARKER, text)


def _read_marker(folder: Path) -> frozenset[_Entry]:
    """Read what was exported; in markers of the first version a line is only a path."""
    marker = folder / MARKER
    if marker.is_symlink() or not marker.is_file():
        return frozenset()
    title, *lines = marker.read_text("utf-8", "replace").split("\n")
    if not title.startswith(_TITLE):
        return frozenset()
    return frozenset(map(_parse_entry, lines))


def _parse_entry(line: str) -> _Entry:
    try:
        path, kind, content = json.loads(line)
        return _Entry(str(path), str(kind), str(content))
    except (ValueError, TypeError, RecursionError):
        return _Entry(line, _ANY)


def _exchange(folder: Path, new: Path, old: Path, with_hidden: frozenset[Path]) -> None:
    """Move the content of a folder to ``old`` and that of ``new`` into it, or nothing at all."""
    moves: list[tuple[Path, Path]] = []
    try:
        for source, target in _plan_moves(folder, new, old, with_hidden):
            moves.append((source, target))
            source.rename(target)
    except BaseException:
        for source, target in reversed(moves):
            if os.path.lexists(target) and not os.path.lexists(source):
                target.rename(source)
        raise


def _plan_moves(
    folder: Path, new: Path, old: Path, with_hidden: frozenset[Path]
) -> Iterator[tuple[Path, Path]]:
    """Yield what to move where; folders with hidden files in them stay, and their content moves."""
    names = {path.name for part in (folder, new) if part.is_dir() for path in part.iterdir()}
    for name in sorted(name for name in names if not name.startswith(".")):
        if folder / name in with_hidden:
            (old / name).mkdir()
            yield from _plan_moves(folder / name, new / name, old / name, with_hidden)
            continue
        if os.path.lexists(folder / name):
            yield folder / name, old / name
        if os.path.lexists(new / name):
            yield new / name, folder / name
