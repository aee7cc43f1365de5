"""A flat image folder with ``train.csv``, ``val.csv`` and ``test.csv`` (filename, label)."""

import os
from pathlib import Path

from infoshot.core.csv_file import read_lines, read_text
from infoshot.core.errors import DataError
from infoshot.images.decoding import FileLocation, ImageRecord
from infoshot.images.layouts.found_images import FoundImages, claim_split
from infoshot.images.splits import SPLITS


def find_lists(root: Path) -> FoundImages | None:
    """Find the images that lists name; ``None`` if there is no list."""
    lists = {split: root / f"{split}.csv" for split in SPLITS if (root / f"{split}.csv").is_file()}
    if not lists:
        return None
    folder = root / "images" if (root / "images").is_dir() else root
    records: list[ImageRecord] = []
    split_of_class: dict[str, str] = {}
    for split, path in lists.items():
        for filename, label in _rows(path):
            claim_split(split_of_class, label, split, path)
            location = FileLocation(_locate(folder, filename, label))
            records.append(ImageRecord(label, location.path.name, location))
    return FoundImages("image folder with CSV lists", records, split_of_class)


def _rows(path: Path) -> list[tuple[str, str]]:
    """Read pairs of file name and label; a first line that starts with 'filename' is a header."""
    rows = read_lines(path, read_text(path))
    if rows and rows[0][1][0].strip().lower() in ("filename", "file", "image", "path"):
        rows = rows[1:]
    for number, row in rows:
        if len(row) != 2:
            raise DataError(
                f"{path}: line {number} must be 'filename,label'; got {','.join(row)!r}."
            )
    return [(row[0].strip(), row[1].strip()) for _, row in rows]


def _locate(folder: Path, filename: str, label: str) -> Path:
    """Path of an image: directly in the folder or, in some copies, in a class folder."""
    flat = folder / filename
    in_class = folder / label / filename
    # Path.exists raises if a name is too long.
    return in_class if not os.path.exists(flat) and os.path.exists(in_class) else flat  # noqa: PTH110
