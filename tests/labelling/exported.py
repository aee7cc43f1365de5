"""Photos to export, and what an export holds."""

import math
import os

from infoshot.labelling import ImageLabel
from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.exports.export_folder import MARKER

FOLDERS = ("imagefolder", "fiftyone")  # exports that are folders of photos


def make_photo(folder, name="a.jpg", label="cat", status="labelled"):
    """Write a file whose content is its path, and return its label."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_bytes(os.fsencode(str(file)))
    readable = status != "unreadable"
    return ImageLabel(
        path=os.fsencode(name).decode(errors="backslashreplace"),
        file=file,
        label=label if status == "labelled" else "",
        confidence=0.75 if readable else math.nan,
        runner_up="dog" if readable else "",
        margin=0.5 if readable else math.nan,
        status=status,
        reason="" if status == "labelled" else "because",
    )


def export(kind, photos, folder):
    named = {name for photo in photos for name in (photo.label, photo.runner_up)}
    EXPORTS[kind](photos, sorted(named - {""}), folder, "tim-auto 1.0")


def tree(folder):
    """Relative path and bytes of every file but the marker."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MARKER)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


def make_photos(tmp_path):
    """Photos of every status, two of them with one name."""
    folder = tmp_path / "photos"
    return [
        make_photo(folder, "a.jpg"),
        make_photo(folder, "sub/a.jpg"),
        make_photo(folder, "b.png", "dog"),
        make_photo(folder, "a.png", "dog"),
        make_photo(folder, "doubt.jpg", status="unsure"),
        make_photo(folder, "other.jpg", status="outlier"),
        make_photo(folder, "broken.jpg", status="unreadable"),
    ]
