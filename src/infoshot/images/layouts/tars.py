"""Tar archives of class folders (``CLASS/NAME.jpg``), read without unpacking."""

import tarfile
from pathlib import Path, PurePosixPath

from infoshot.core.errors import DataError
from infoshot.core.regular_file import open_regular
from infoshot.images.decoding import ImageRecord, SliceLocation, is_image_name
from infoshot.images.layouts.found_images import FoundImages


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
    try:
        with open_regular(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise DataError(
                        f"{archive}: the member {member.name!r} points outside the archive, "
                        "which is not allowed."
                    )
                if not member.isfile():
                    continue
                if len(path.parts) < 2 or not is_image_name(path.name):
                    found.ignored.append(f"{archive}:{member.name}")
                    continue
                location = SliceLocation(archive, member.name, member.offset_data, member.size)
                found.records.append(ImageRecord(path.parts[-2], path.name, location))
    except (tarfile.TarError, OSError) as error:
        raise DataError(
            f"{archive}: not a complete, uncompressed tar archive ({error})."
        ) from error
