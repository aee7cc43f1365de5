"""Export folders: they appear complete or not at all, and replace only earlier exports."""

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
    """Yield a temporary folder to fill; it then replaces an earlier export.

    A marker file lists what was exported, so that nothing else is replaced.

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


def _check_replaceable(folder: Path, photos: Sequence[ImageLabel]) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder}: a file; an export needs a folder.")
    if any(_real(photo.file).is_relative_to(folder) for photo in photos):
        raise DataError(f"{folder}: the export would replace the images themselves.")
    marker = folder / MARKER
    known = marker.read_text("utf-8", "replace").splitlines()[1:] if marker.is_file() else []
    if others := sorted(_contents(folder) - set(known)):
        raise DataError(
            f"{folder}: contains {len(others)} files that are not part of an export, such as "
            f"'{others[0]}'; move them, or export to another folder."
        )


def _contents(folder: Path) -> set[str]:
    """List the files of a folder, without subfolders and hidden files."""
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
