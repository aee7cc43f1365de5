"""Pictures of the items: decoded, reduced and encoded again, and kept in memory.

No byte of a file is sent as it is. What a browser gets is encoded from pixels, so that it holds no
metadata, and a file that is not an image is never sent.
"""

import io
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from PIL import Image

from infoshot.images.decoding import FileLocation

SIZES = (96, 160, 320, 640, 1600)
_QUALITY = 80
_LARGEST = 64 * 2**20


class Pictures:
    """JPEG pictures by content and size, the latest ones kept in memory; thread-safe.

    Parameters
    ----------
    largest
        Bytes that are kept at most.
    """

    def __init__(self, largest: int = _LARGEST) -> None:
        self._largest = largest
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._n_bytes = 0
        self._lock = Lock()

    def find(self, digest: str, size: int) -> bytes | None:
        """Return a picture that is kept; ``None`` if it is not."""
        with self._lock:
            picture = self._kept.get((digest, size))
            if picture is not None:
                self._kept.move_to_end((digest, size))
            return picture

    def make(self, path: Path, digest: str, size: int) -> bytes:
        """Return a picture, which is made if it is not kept.

        Parameters
        ----------
        path, digest
            The file, and the sha256 of its content.
        size
            Pixels of the longer side; smaller images keep their size.

        Raises
        ------
        DataError
            If the file cannot be read, or is not an image within the limits of
            :mod:`infoshot.core.pixels`.
        """
        picture = self.find(digest, size)
        if picture is None:
            picture = _make(path, size)
            self._keep((digest, size), picture)
        return picture

    def _keep(self, key: tuple[str, int], picture: bytes) -> None:
        with self._lock:
            self._n_bytes += len(picture) - len(self._kept.pop(key, b""))
            self._kept[key] = picture
            while self._n_bytes > self._largest:
                _, oldest = self._kept.popitem(last=False)
                self._n_bytes -= len(oldest)


def _make(path: Path, size: int) -> bytes:
    image = Image.fromarray(FileLocation(path).pixels(at_least=size))
    image.thumbnail((size, size))
    content = io.BytesIO()
    image.save(content, "JPEG", quality=_QUALITY)
    return content.getvalue()
