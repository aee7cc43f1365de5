"""CUB-200-2011 as published: ``images/``, ``images.txt``, ``image_class_labels.txt``."""

from pathlib import Path, PurePosixPath

from infoshot.core.errors import DataError
from infoshot.images.decoding import FileLocation, ImageRecord
from infoshot.images.layouts.found_images import FoundImages


def find_cub(root: Path) -> FoundImages | None:
    """Find the images of CUB's official tree; ``None`` if this is not one."""
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
    return FoundImages("CUB's official tree", records)


def _table(path: Path) -> dict[str, str]:
    """Read lines of 'number value'."""
    try:
        lines = [line.split(maxsplit=1) for line in path.read_text().splitlines() if line.strip()]
        return {number: value.strip() for number, value in lines}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: must have lines of 'number value' ({error}).") from error
