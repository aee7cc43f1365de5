"""Folders of photos that appear whole or not at all, and replace only their like."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from infoshot.core.atomic import temporary_name
from infoshot.core.errors import DataError
from infoshot.labelling.decide import ImageLabel

MARKER = ".infoshot-export"


@contextmanager
def whole_folder(folder: Path, photos: Sequence[ImageLabel], model_version: str) -> Iterator[Path]:
    """A folder to fill, which gets its name in the end; what was exported there before goes.

    A marker lists what was exported, so that nothing else is ever replaced.

    Parameters
    ----------
    folder
        Where it shall be.
    photos
        What will be put into it.
    model_version
        What labelled them.

    Raises
    ------
    DataError
        If there is something that was not exported, or it cannot be written; all stays as it was.
    """
    folder = folder.resolve()
    new, old = temporary_name(folder), temporary_name(folder)
    try:
        _check_replaceable(folder, photos)
        new.mkdir(parents=True)
        yield new
        lines = (f"Exported by InfoShot ({model_version}):", *sorted(_contents(new)))
        (new / MARKER).write_text("\n".join(lines), encoding="utf-8")
        _exchange(folder, new, old)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error}).") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def put(photo: ImageLabel, place: Path) -> None:
    """Make a relative link to a photo, or copy it where links cannot be made."""
    source = _real(photo.file)
    try:
        place.symlink_to(os.path.relpath(source, place.parent))
    except (OSError, ValueError):  # no right to, or from one drive to another
        with source.open("rb") as read, place.open("xb") as written:  # never through a link
            shutil.copyfileobj(read, written)


def _real(file: Path) -> Path:
    """The place of a file without links on the way, since ``..`` does not go back through them."""
    return file.parent.resolve() / file.name


def _check_replaceable(folder: Path, photos: Sequence[ImageLabel]) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder}: there is a file already; an export needs a folder.")
    if any(_real(photo.file).is_relative_to(folder) for photo in photos):
        raise DataError(f"{folder}: the export would replace the photos themselves.")
    marker = folder / MARKER
    known = marker.read_text("utf-8", "replace").splitlines()[1:] if marker.is_file() else []
    if strange := sorted(_contents(folder) - set(known)):
        raise DataError(
            f"{folder}: holds {len(strange)} files that were not exported there, such as "
            f"'{strange[0]}'; move them away or export to another folder."
        )


def _contents(folder: Path) -> set[str]:
    """Everything in a folder but subfolders and what systems hide there."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.name.startswith(".") and (path.is_symlink() or not path.is_dir())
    }


def _exchange(folder: Path, new: Path, old: Path) -> None:
    if folder.exists():
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
