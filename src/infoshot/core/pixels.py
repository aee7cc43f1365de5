"""Images of any common format as RGB pixels, with limits on memory and time.

A file of some kilobytes may describe an image of gigabytes, or hundreds of passes over it. Pillow
limits the number of pixels only, so memory and time are estimated here from the header, before an
image is decoded. Photos of 100 megapixels are within all limits. The limits depend only on the
file, so that every command accepts the same images.
"""

import io
import re
import struct
import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from infoshot.core.errors import DataError

Pixels = NDArray[np.uint8]
_STRIP = 2**18  # pixels that are converted at a time
_MOST_MEMORY = 800_000_000  # bytes while one image is decoded
_MOST_SCANNED = 2_500_000_000  # pixels times scans of a JPEG; 0.7 ns each
_MOST_SCANS_IN_TIFF = 100  # libtiff's own limit
_MOST_EXIF = 100  # parts; Pillow joins them in quadratic time
_LARGEST_ASPECT = 100
_SMALL = {"1": 1, "L": 1, "P": 1}  # bytes per pixel of modes; all others but I;16 take four
_WHILE_LOADING = {"WEBP": 18, "AVIF": 16, "JPEG2000": 32}  # bytes per pixel, measured
_IN_PYTHON = ("ppm", "ppm_plain", "bmp_rle")  # decoders of Pillow that take 0.5 µs per byte
_LARGEST_IN_PYTHON = 8_000_000
_MARKER = re.compile(rb"\xff([^\x00\x01\xff\xd0-\xd7])")  # not stuffing, padding or a restart
_START_OF_IMAGE, _END_OF_IMAGE, _START_OF_SCAN = b"\xd8", b"\xd9", b"\xda"
_TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP, _BITS = 322, 323, 278, 258
_PASSES = (  # of an interlaced PNG: first column and row, distance of columns and rows
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by the colour type of a PNG
_PIECE = 2**20


def decode(content: bytes, name: str, *, at_least: int | None = None) -> Pixels:
    """Decode an image of any common format to RGB pixels.

    Greyscale, palette and CMYK images become RGB, transparency is put on black, 16 bits become 8,
    animations yield their first frame, and photos are rotated as their EXIF orientation says. With
    ``at_least`` a JPEG is decoded at half, a quarter or an eighth of its size as long as both
    sides keep that many pixels, which is several times faster for large photos.

    Raises
    ------
    DataError
        If the bytes are not a complete image; the message starts with ``name``.
    """
    if not content:
        raise DataError(f"{name}: the file is empty.")
    try:
        pixels, orientation = _load(content, at_least)
        return np.ascontiguousarray(_upright(pixels, orientation))
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: not an image, or in a format that is not supported.") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{name}: too large for a photo ({error}).") from error
    except Exception as error:  # decoders raise many kinds of errors for damaged bytes
        raise DataError(f"{name}: cannot be decoded ({_first_line(error)}).") from error


def _load(content: bytes, at_least: int | None) -> tuple[Pixels, int]:
    """Return pixels and orientation; Pillow's image is freed on return."""
    _check_metadata(content)
    with Image.open(io.BytesIO(content), formats=_formats()) as image:
        check_cost(image, content)
        if at_least is not None:
            image.draft(None, (at_least, at_least))
        image.load()
        _check_rows(image, content)
        return _pixels(image), _orientation(image)


@cache
def _formats() -> tuple[str, ...]:
    """List the formats of photos that Pillow decodes here without another program."""
    Image.init()
    kinds = "JPEG MPO PNG GIF WEBP TIFF BMP PPM AVIF JPEG2000"
    return tuple(kind for kind in kinds.split() if kind in Image.OPEN)


def _orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # damaged metadata; the pixels are still usable
        return 1
    return int(orientation) if orientation in range(1, 9) else 1


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Rotate as the EXIF orientation says."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _pixels(image: Image.Image) -> Pixels:
    """Convert to RGB; large images in strips, so that copies take little memory."""
    n_rows = _STRIP // image.width
    if n_rows >= image.height:
        return np.asarray(_rgb(image))
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top in range(0, image.height, n_rows):
        strip = image.crop((0, top, image.width, min(top + n_rows, image.height)))
        pixels[top : top + n_rows] = np.asarray(_rgb(strip))
    return pixels


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode == "I":
        values = np.asarray(image).clip(0, 65_535) // 257
        image = Image.fromarray(values.astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("the range of floating-point pixels is unknown")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        ground = Image.new("RGBA", layer.size, (0, 0, 0, 255))
        image = Image.alpha_composite(ground, layer)
    return image if image.mode == "RGB" else image.convert("RGB")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0] or type(error).__name__


def check_shape(width: int, height: int) -> None:
    """Raise ``ValueError`` if an image has no pixels or is a thin line."""
    if max(width, height) > _LARGEST_ASPECT * min(width, height):
        raise ValueError(f"{width} x {height} pixels are too narrow for a photo")
    if width * height == 0:
        raise ValueError(f"{width} x {height} pixels are no image")


def check_cost(image: Image.Image, content: bytes) -> None:
    """Check an image that has been opened, before its pixels are decoded.

    Raises
    ------
    PIL.Image.DecompressionBombError
        If decoding would take too much memory.
    ValueError
        If it would take too long, or the image is too narrow for a photo.
    """
    n_pixels = image.width * image.height
    n_scans = _count_scans(image, content)
    memory = n_pixels * max(_loading_bytes(image, n_scans), _stored_bytes(image) + 3)
    if memory > _MOST_MEMORY:
        raise Image.DecompressionBombError(
            f"{image.width} x {image.height} pixels, which take {memory / 1e9:.1f} GB; at most "
            f"{_MOST_MEMORY / 1e9:.1f} GB are allowed"
        )
    check_shape(*image.size)
    if n_scans * n_pixels > _MOST_SCANNED:
        raise ValueError(
            f"{image.width} x {image.height} pixels in {n_scans} scans take too long to decode"
        )
    tiles = getattr(image, "tile", [])
    if tiles and tiles[0][0] in _IN_PYTHON and len(content) > _LARGEST_IN_PYTHON:
        raise ValueError(
            f"{len(content) / 1e6:.0f} MB of this kind of {image.format} take too long to decode"
        )


def _check_metadata(content: bytes) -> None:
    """Raise ``ValueError`` if opening the image would take long."""
    if content.startswith(b"\xff\xd8") and content.count(b"Exif\0\0") > _MOST_EXIF:
        raise ValueError(f"its EXIF data have more than {_MOST_EXIF} parts")


def _stored_bytes(image: Image.Image) -> int:
    """Bytes per pixel of Pillow's image."""
    return 2 if image.mode.startswith("I;16") else _SMALL.get(image.mode, 4)


def _loading_bytes(image: Image.Image, n_scans: int) -> float:
    """Bytes per pixel of Pillow's image and the decoder's buffers."""
    stored = _stored_bytes(image)
    if image.format in ("JPEG", "MPO") and n_scans > 1:
        # Several scans are collected in two bytes per value; colours may have a lower resolution.
        layers: list[tuple[int, int, int, int]] = image.layer  # type: ignore[attr-defined]
        sampling = [(across, down) for _, across, down, _ in layers]
        finest = max(a for a, _ in sampling) * max(d for _, d in sampling)
        return stored + 2 * sum(a * d for a, d in sampling) / max(1, finest)
    if image.format == "TIFF":
        return stored + _tile_bytes(image) / (image.width * image.height)
    return _WHILE_LOADING.get(image.format or "", stored)


def _tile_bytes(image: Image.Image) -> int:
    """Bytes of a strip or tile of a TIFF, which may be larger than the image."""
    tags = image.tag_v2  # type: ignore[attr-defined]
    bits = tags.get(_BITS, (1,))
    per_pixel = max(4, sum(bits if isinstance(bits, tuple) else (bits,)) // 8)
    rows = min(int(tags.get(_ROWS_PER_STRIP, image.height)), image.height)
    width, length = tags.get(_TILE_WIDTH, image.width), tags.get(_TILE_LENGTH, rows)
    return int(width) * int(length) * per_pixel


def _count_scans(image: Image.Image, content: bytes) -> int:
    """Count how often a decoder passes over the pixels; more than allowed need not be exact."""
    if image.format == "TIFF" and "jpeg" in str(image.info.get("compression")):
        return min(content.count(b"\xff\xda"), _MOST_SCANS_IN_TIFF)
    if image.format not in ("JPEG", "MPO"):
        return 1
    most = content.count(b"\xff\xda")  # other pictures and films in the file included
    if most * image.width * image.height <= _MOST_SCANNED:
        return most
    n_scans = 0
    marker = _MARKER.search(content, 2)
    while marker is not None and marker[1] != _END_OF_IMAGE:
        place = marker.end()
        n_scans += marker[1] == _START_OF_SCAN
        if marker[1] != _START_OF_IMAGE:
            place += int.from_bytes(content[place : place + 2], "big")
        marker = _MARKER.search(content, place)
    return n_scans


def _check_rows(image: Image.Image, content: bytes) -> None:
    """Raise ``ValueError`` if a decoded PNG lacks rows, which Pillow leaves black.

    Rows are decoded in order, so that a last row that is not black is enough. Only if it is black,
    or the image is interlaced, the data are decompressed again and counted.
    """
    if image.format != "PNG":
        return
    header = struct.unpack(">IIBBBBB", content[16:29])
    expected, is_interlaced = _png_bytes(*header), header[-1]
    bottom = image.height - 1
    if not is_interlaced:
        corner = image.getpixel((image.width - 1, bottom))
        if any(corner) if isinstance(corner, tuple) else corner:
            return
        if expected > _PIECE:
            row = image.crop((0, bottom, image.width, image.height))
            if np.asarray(row).any():
                return
    found = _inflated_bytes(content, expected)
    if found < expected:
        raise ValueError(f"the image is incomplete: {found:,} of {expected:,} bytes")


def _png_bytes(
    width: int, height: int, depth: int, colour: int, _: int, __: int, interlaced: int
) -> int:
    """Bytes of all rows of a PNG, each with its filter."""
    total = 0
    for left, top, right, down in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -((left - width) // right), -((top - height) // down)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * depth * _CHANNELS[colour] // 8))
    return total


def _inflated_bytes(content: bytes, enough: int) -> int:
    """Count the bytes of the compressed stream of a PNG, at most about ``enough``."""
    stream, found, place = zlib.decompressobj(), 0, 8
    while place + 8 <= len(content) and found < enough and not stream.eof:
        length, kind = struct.unpack(">I4s", content[place : place + 8])
        part = content[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        while part and found < enough and not stream.eof:
            found += len(stream.decompress(part, _PIECE))
            part = stream.unconsumed_tail
        place += 12 + length
    return found
