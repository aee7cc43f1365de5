"""Class folders: ``CLASS/*.jpg`` under the root, ``images``, or ``train``, ``val``, ``test``."""

from pathlib import Path

from infoshot.core.errors import DataError
from infoshot.core.text import escape_name
from infoshot.images.decoding import FileLocation, ImageRecord, is_image_name
from infoshot.images.layouts.found_images import FoundImages, claim_split

SPLIT_FOLDERS = {
    "train": "train",
    "base": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "novel": "test",
}


def find_class_folders(root: Path) -> FoundImages | None:
    """Find images in class folders; ``None`` if there are none."""
    tops = {folder.name.lower(): folder for folder in _folders(root)}
    splits = {SPLIT_FOLDERS[name]: folder for name, folder in tops.items() if name in SPLIT_FOLDERS}
    if splits:
        parts = [(split, folder) for split, folder in sorted(splits.items())]
    else:
        parts = [("", tops.get("images", root))]
    records: list[ImageRecord] = []
    ignored: list[str] = []
    split_of_class: dict[str, str] = {}
    for split, folder in parts:
        for class_folder in _folders(folder):
            class_name = escape_name(class_folder.name)
            files = [file for file in _entries(class_folder) if file.is_file()]
            images = [file for file in files if is_image_name(file)]
            ignored += [str(file) for file in files if not is_image_name(file)]
            records += [ImageRecord(class_name, file.name, FileLocation(file)) for file in images]
            if images and split:
                claim_split(split_of_class, class_name, split, root)
    return FoundImages("class folders", records, split_of_class, ignored) if records else None


def _folders(root: Path) -> list[Path]:
    return [entry for entry in _entries(root) if entry.is_dir()]


def _entries(folder: Path) -> list[Path]:
    """Sorted entries, without hidden ones."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from error
