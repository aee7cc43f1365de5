"""Images on disk, wherever they lie: files, members of tar archives, arrays out of pickles.

A record knows its class and where its bytes are; decoding turns it into RGB pixels. What cannot be
decoded is named in one sentence.
"""

import io
import os
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from infoshot.core.errors import DataError

EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .png .bmp .gif .webp .tif .tiff .ppm .pgm .pnm".split()  # noqa: SIM905
)
Pixels = NDArray[np.uint8]
_MOST_PIXELS = 90_000_000
_LARGEST_ASPECT = 100
_TURNS = {  # by the orientation that the camera noted
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Location(ABC):
    """Where the bytes or the pixels of an image are."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What to call it in messages."""

    @abstractmethod
    def content(self) -> bytes:
        """Everything that determines the pixels, for digests and for decoding."""

    def pixels(self) -> Pixels:
        """RGB pixels, ``(height, width, 3)``."""
        return decode(self.content(), self.name)


@final
@dataclass(frozen=True)
class FileLocation(Location):
    """A file."""

    path: Path

    @property
    def name(self) -> str:
        """Return the path."""
        return str(self.path)

    def content(self) -> bytes:
        """Read the file; pipes and devices are not read, since they may never end."""
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise DataError(f"{self.name}: not a regular file.")
            return self.path.read_bytes()
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror}).") from error


@final
@dataclass(frozen=True)
class SliceLocation(Location):
    """A stretch of a larger file: a member of an uncompressed tar archive."""

    path: Path
    member: str
    offset: int
    size: int

    @property
    def name(self) -> str:
        """Return archive and member."""
        return f"{self.path}:{self.member}"

    def content(self) -> bytes:
        """Read the stretch."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                content = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.name}: cannot be read ({error.strerror}).") from error
        if len(content) < self.size:
            raise DataError(f"{self.name}: the archive ends before the image does.")
        return content


@final
@dataclass(frozen=True, eq=False)
class ArrayLocation(Location):
    """A row of an array in memory: pixels, or an encoded image if the row is flat."""

    source: str
    row: Any

    @property
    def name(self) -> str:
        """Return the file and the row."""
        return self.source

    def content(self) -> bytes:
        """Return the bytes of the row."""
        return np.ascontiguousarray(self.row, dtype=np.uint8).tobytes()

    def pixels(self) -> Pixels:
        """RGB pixels, as they are stored or decoded."""
        row = np.asarray(self.row)
        if row.ndim == 1:
            return decode(self.content(), self.name)
        if row.ndim != 3 or row.shape[2] != 3 or row.dtype != np.uint8:
            raise DataError(
                f"{self.name}: pixels must be uint8 [height, width, 3]; "
                f"got {row.dtype} {list(row.shape)}."
            )
        return np.ascontiguousarray(row)


@dataclass(frozen=True, eq=False)
class ImageRecord:
    """One image of a data set: its class, its place among them, and where it is.

    ``key`` orders the images of a class the same way in every layout.
    """

    class_name: str
    key: str
    location: Location


def decode(content: bytes, name: str, *, at_least: int | None = None) -> Pixels:
    """RGB pixels of an encoded photo of any common kind.

    Greyscale, palette and CMYK images become RGB, transparency is laid on black, 16 bits become 8,
    the first frame of an animation is taken, photos that were taken sideways are turned upright.
    With ``at_least`` a JPEG comes in half, a quarter or an eighth of its size, as long as neither
    side has fewer pixels than that: several times faster for large photos.

    Raises
    ------
    DataError
        If the bytes are no image, or not a whole one; the sentence names it.
    """
    if not content:
        raise DataError(f"{name}: the file is empty.")
    try:
        with Image.open(io.BytesIO(content), formats=_formats()) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise Image.DecompressionBombError(f"{image.width} x {image.height} pixels")
            if max(image.size) > _LARGEST_ASPECT * min(image.size):
                raise ValueError(f"{image.width} x {image.height} pixels are too thin for a photo")
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()
            return np.asarray(_rgb(_upright(image)))
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: not an image, or of a kind that cannot be read.") from error
    except Image.DecompressionBombError as error:
        raise DataError(f"{name}: too large to be a photo ({error}).") from error
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise DataError(f"{name}: cannot be decoded ({_first_line(error)}).") from error


@cache
def _formats() -> tuple[str, ...]:
    """Kinds of photos that this Pillow knows; not those that other programs would be run for."""
    Image.init()
    kinds = "JPEG MPO PNG GIF WEBP TIFF BMP DIB PPM AVIF ICO TGA JPEG2000"
    return tuple(kind for kind in kinds.split() if kind in Image.OPEN)


def is_image_name(name: str | os.PathLike[str]) -> bool:
    """Whether a name ends like an image's; hidden files are none."""
    path = Path(name)
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__


def _upright(image: Image.Image) -> Image.Image:
    """The image as it was seen; Pillow's own function fails where other metadata are damaged."""
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # whatever it makes of damaged metadata; the pixels are there
        return image
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        values = np.asarray(image, dtype=np.float64)
        image = Image.fromarray((values / 257).clip(0, 255).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, (0, 0, 0, 255))
        image = Image.alpha_composite(ground, layer)
    return image.convert("RGB")
