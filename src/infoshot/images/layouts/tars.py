"""Tar archives of class folders (``CLASS/NAME.jpg``), read without unpacking."""

from pathlib import Path

from infoshot.core.text import escape_name
from infoshot.images.decoding import ImageRecord, is_image_name
from infoshot.images.layouts.found_images import FoundImages
from infoshot.images.layouts.tar_index import index_tar


def find_tars(root: Path) -> FoundImages | None:
    """Find images in the uncompressed tar archives of the root; ``None`` if there are none."""
    archives = sorted(root.glob("*.tar"))
    if not archives:
        return None
    found = FoundImages("tar archives of class folders", [], {}, [])
    for archive in archives:
        _index(archive, found)
    return found


def _index(archive: Path, found: FoundImages) -> None:
    """Add the images of an archive."""
    for file in index_tar(archive):
        is_image = len(file.path.parts) >= 2 and is_image_name(file.path.name)
        if is_image and file.location is not None:
            class_name = escape_name(file.path.parts[-2])
            found.records.append(ImageRecord(class_name, file.path.name, file.location))
        else:
            found.ignored.append(f"{archive}:{file.name}")
