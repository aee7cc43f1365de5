"""CUB-200-2011 as it is published: ``images/``, ``images.txt``, ``image_class_labels.txt``."""

from pathlib import Path, PurePosixPath

from infoshot.core.errors import DataError
from infoshot.images.decoding import FileLocation, ImageRecord
from infoshot.images.layouts.found import Found


def find_cub(root: Path) -> Found | None:
    """Images of CUB's official tree, or ``None`` if this is not one."""
    names, labels = root / "images.txt", root / "image_class_labels.txt"
    if not (names.is_file() and labels.is_file()):
        return None
    paths, numbers = _table(names), _table(labels)
    if paths.keys() != numbers.keys():
        raise DataError(f"{labels}: must number the same images as {names.name}.")
    class_of_number: dict[str, str] = {}
    records = []
    for image, path in paths.items():
        folder = PurePosixPath(path).parent.name
        if class_of_number.setdefault(numbers[image], folder) != folder:
            raise DataError(
                f"{labels}: class {numbers[image]} has images in '{folder}' and in "
                f"'{class_of_number[numbers[image]]}'."
            )
        location = FileLocation(root / "images" / path)
        records.append(ImageRecord(folder, location.path.name, location))
    return Found("CUB's official tree", records)


def _table(path: Path) -> dict[str, str]:
    """Lines of 'number value'."""
    try:
        lines = [line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip()]
        return {number: value.strip() for number, value in lines}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: must hold lines of 'number value' ({error}).") from error
