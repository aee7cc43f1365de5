"""Class folders: ``CLASS/*.jpg`` under the root, under ``images``, or under ``train`` etc."""

from pathlib import Path

from infoshot.data.images import FileLocation, ImageRecord, is_image_name
from infoshot.data.layouts.found import Found
from infoshot.errors import DataError

SPLIT_FOLDERS = {
    "train": "train",
    "base": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "novel": "test",
}


def find_class_folders(root: Path) -> Found | None:
    """Images in class folders, or ``None`` if there are none."""
    tops = {folder.name.lower(): folder for folder in _folders(root)}
    splits = {SPLIT_FOLDERS[name]: folder for name, folder in tops.items() if name in SPLIT_FOLDERS}
    if splits:
        parts = [(split, folder) for split, folder in sorted(splits.items())]
    else:
        parts = [("", tops.get("images", root))]
    found = Found("class folders", [], {}, [])
    split_of_class: dict[str, str] = {}
    for split, folder in parts:
        for class_folder in _folders(folder):
            files = [file for file in _entries(class_folder) if file.is_file()]
            images = [file for file in files if is_image_name(file)]
            found.ignored.extend(str(file) for file in files if file not in set(images))
            found.records.extend(
                ImageRecord(class_folder.name, file.name, FileLocation(file)) for file in images
            )
            if images and split:
                _claim(split_of_class, class_folder.name, split, root)
    if not found.records:
        return None
    return Found(found.layout, found.records, split_of_class, found.ignored)


def _claim(split_of_class: dict[str, str], class_name: str, split: str, root: Path) -> None:
    before = split_of_class.setdefault(class_name, split)
    if before != split:
        raise DataError(
            f"{root}: a class must be in one split only; '{class_name}' is in {before} and {split}."
        )


def _folders(root: Path) -> list[Path]:
    return [entry for entry in _entries(root) if entry.is_dir()]


def _entries(folder: Path) -> list[Path]:
    """Sorted entries, without hidden ones."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}).") from error
