"""Images in tar archives of the webdataset format.

The files of a sample have the same name up to the first dot: its key. ``0001.jpg`` and
``0001.json`` are the sample ``0001``, and ``cats/0001.jpg`` is in ``cats/0001``. The image of a
sample is its file whose whole extension is that of an image, so ``0001.mask.png`` is not. Other
files are ignored.
Archives are read without unpacking, see ``tar_index.py``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infoshot.core.errors import DataError
from infoshot.core.places import find_files
from infoshot.core.text import escape_name
from infoshot.images.decoding import EXTENSIONS, SliceLocation
from infoshot.images.layouts.tar_index import index_tar

SUFFIX = ".tar"
_SAMPLE = re.compile(r"((?:.*/)?[^./][^./]*)(\.[^./]+)", re.DOTALL)


@dataclass(frozen=True)
class TarSample:
    """The image of a sample: ``path`` is its name in results, ``file`` the archive it is in."""

    path: str
    file: Path
    key: str
    location: SliceLocation


def find_samples(given: Path) -> list[TarSample] | None:
    """Find the images of an archive, of a folder of archives, or of a pattern such as ``a-*.tar``.

    Returns
    -------
    The images in the order of the archives' paths and of the files in them; ``None`` if there are
    no archives.

    Raises
    ------
    DataError
        If an archive is damaged, has no images, or has two images of a sample.
    """
    found = find_files(given, [SUFFIX])
    if found is None and given.suffix == SUFFIX and given.is_file():
        found = [given]
    archives = [archive for archive in found or () if isinstance(archive, Path)]
    return [sample for archive in archives for sample in _samples(archive)] if archives else None


def _samples(archive: Path) -> Iterator[TarSample]:
    members: dict[str, str] = {}
    for file in index_tar(archive):
        match = _SAMPLE.fullmatch(file.name)
        if file.location is None or match is None or match[2].lower() not in EXTENSIONS:
            continue
        key = escape_name(match[1].removeprefix("./"))
        if key in members:
            raise DataError(
                f"{archive}: the sample {key!r} has two images, {members[key]!r} and "
                f"{file.name!r}; only one is expected."
            )
        members[key] = file.name
        yield TarSample(escape_name(f"{archive}:{file.name}"), archive, key, file.location)
    if not members:
        raise DataError(f"{archive}: the archive contains no images of samples (KEY.jpg).")
