"""Limits of decoding, and images that lack rows."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from infoshot import DataError
from infoshot.core import pixels
from infoshot.core.memory import watch_peak
from infoshot.core.pixels import check_cost, decode
from infoshot.images.decoding import FileLocation, read_crop
from infoshot.images.inspection import inspect_dataset

RANDOM = np.random.default_rng(0)


def _encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width, height, depth, colour, rows, interlaced=0, palette=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    chunks = [
        _chunk(b"IHDR", header),
        _chunk(b"IDAT", zlib.compress(rows, 1)),
        _chunk(b"IEND", b""),
    ]
    if palette:
        chunks.insert(1, _chunk(b"PLTE", palette))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


KINDS = {  # bits and colour type, bytes of a row of 16 pixels
    "1 bit": (1, 0, 2), "2 bits": (2, 0, 4), "grey": (8, 0, 16), "grey, 16 bits": (16, 0, 32),
    "colour": (8, 2, 48), "colour, 16 bits": (16, 2, 96), "palette": (8, 3, 16),
    "grey and alpha": (8, 4, 32), "alpha": (8, 6, 64), "alpha, 16 bits": (16, 6, 128),
}  # fmt: skip


@pytest.mark.parametrize("value", [0, 85])
@pytest.mark.parametrize("kind", KINDS)
def test_png_that_lacks_rows_is_refused(kind, value, tmp_path):
    depth, colour, n_bytes = KINDS[kind]
    palette = bytes(range(256)) * 3 if colour == 3 else b""
    row = b"\0" + bytes([value]) * n_bytes
    path = tmp_path / "a.png"
    path.write_bytes(_png(16, 20, depth, colour, row * 20, palette=palette))
    assert FileLocation(path).pixels().shape == (20, 16, 3)
    for n_rows in (1, 10, 19):
        path.write_bytes(_png(16, 20, depth, colour, row * n_rows, palette=palette))
        with pytest.raises(DataError, match=r"a\.png: cannot be decoded \(the image is incomplete"):
            FileLocation(path).pixels()


def test_large_png_that_lacks_rows_is_refused_everywhere(tmp_path):
    row = b"\0" + b"\x55" * 3 * 3000
    (tmp_path / "c").mkdir()
    path = tmp_path / "c" / "a.png"
    path.write_bytes(_png(3000, 3000, 8, 2, row))
    with pytest.raises(DataError, match=r"incomplete: 9,001 of 27,003,000 bytes"):
        FileLocation(path).pixels()
    with pytest.raises(DataError, match="incomplete"):
        read_crop(FileLocation(path), 96, 84)
    (message,) = inspect_dataset("folder", tmp_path).broken
    assert "the image is incomplete" in message


def test_interlaced_png_that_lacks_a_pass_is_refused():
    sizes = [(2, 3), (2, 3), (4, 2), (4, 5), (8, 5), (8, 10), (16, 10)]  # of 16 x 20 pixels
    passes = [(b"\0" + b"\x55" * columns) * rows for columns, rows in sizes]
    assert decode(_png(16, 20, 8, 0, b"".join(passes), 1), "x").shape == (20, 16, 3)
    with pytest.raises(DataError, match="cannot be decoded"):
        decode(_png(16, 20, 8, 0, b"".join(passes[:-1]), 1), "x")


def test_sixteen_bits_take_little_memory():
    content = _png(6000, 6000, 16, 0, (b"\0" + b"\x12\x34" * 6000) * 6000)
    peak = watch_peak()
    pixels = decode(content, "x")
    assert not peak() > 300e6
    assert (pixels == 0x1234 // 257).all()


def _with_scans(width, height, n_scans):
    """A progressive JPEG that repeats its last scan."""
    content = _encoded(Image.new("L", (width, height), 99), "JPEG", progressive=True)
    last = content.rindex(b"\xff\xda")
    return content[:-2] + content[last:-2] * n_scans + content[-2:]


def test_jpeg_of_many_scans_is_refused_before_it_is_decoded():
    with pytest.raises(
        DataError, match=r"x: cannot be decoded \(3000 x 3000 pixels in 2006 scans take too long"
    ):
        decode(_with_scans(3000, 3000, 2000), "x")
    assert decode(_with_scans(300, 300, 200), "x").shape == (300, 300, 3)


def test_data_after_a_photo_is_not_counted_as_scans():
    photo = _encoded(Image.new("RGB", (2000, 1500), 99), "JPEG", progressive=True)
    film = b"\xff\xda\x00\x08" * 2000
    assert decode(photo + film, "x").shape == (1500, 2000, 3)
    exif = b"\xff\xe1" + struct.pack(">H", 2 + len(film)) + film
    assert decode(photo[:2] + exif + photo[2:], "x").shape == (1500, 2000, 3)


def _tiff(width, height, tile, value=b""):
    """Grey and compressed, in one tile."""
    compressor = zlib.compressobj(1)
    data = b"".join(compressor.compress(bytes(tile)) for _ in range(tile)) + compressor.flush()
    entries = [(256, width), (257, height), (258, 8), (259, 8), (262, 1), (277, 1), (322, tile),
               (323, tile), (324, 8 + 2 + 12 * 10 + 4), (325, len(data))]  # fmt: skip
    packed = b"".join(struct.pack("<HHII", tag, 4, 1, number) for tag, number in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + packed + bytes(4) + data


def _flat(kind, size, mode="RGB", **options):
    return _encoded(Image.new(mode, size, 7 if mode == "L" else None), kind, **options)


def _resized(content, marker, width, height):
    """A JPEG with another size in its header."""
    frame = content.index(marker)
    return content[: frame + 5] + struct.pack(">HH", height, width) + content[frame + 9 :]


JPEG = _flat("JPEG", (16, 16))
PROGRESSIVE = _flat("JPEG", (16, 16), progressive=True)
EXIF = b"\xff\xe1\x00\x10Exif\0\0abcdefgh"
TOO_MUCH = {
    "pixels of a JPEG": (_resized(JPEG, b"\xff\xc0", 13000, 12000), r"too large for a photo \(13000 x 12000 pixels, which take 1\.1 GB; at most 0\.8 GB"),
    "pixels of a progressive JPEG": (_resized(_flat("JPEG", (16, 16), progressive=True, subsampling=0), b"\xff\xc2", 10000, 9000), "too large for a photo"),
    "pixels of a PNG": (_png(13000, 12000, 8, 2, b""), "too large for a photo"),
    "tile of a TIFF": (_tiff(10, 10, 16384), r"too large for a photo \(10 x 10 pixels"),
    "parts of EXIF": (JPEG[:2] + EXIF * 200 + JPEG[2:], "its EXIF data have more than 100 parts"),
    "plain numbers": (b"P3 2000 2000 255\n" + b"1 " * 12_000_000, "24 MB of this kind of PPM take too long"),
    "unusual range": (b"P6 2000 2000 254\n" + bytes(12_000_000), "12 MB of this kind of PPM take too long"),
}  # fmt: skip


@pytest.mark.parametrize("case", TOO_MUCH)
def test_images_that_cost_too_much_are_refused_before_they_are_decoded(case):
    content, message = TOO_MUCH[case]
    peak = watch_peak()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(DataError, match=rf"x: .*{message}") as caught:
            decode(content, "x")
    assert not peak() > 60e6
    assert "\n" not in str(caught.value)


PHOTOS = {
    "baseline": _resized(JPEG, b"\xff\xc0", 11648, 8736),
    "progressive": _resized(PROGRESSIVE, b"\xff\xc2", 11648, 8736),
    "png": _png(11648, 8736, 8, 2, b""),
    "png, 16 bits": _png(11648, 8736, 16, 2, b""),
}


@pytest.mark.parametrize("kind", PHOTOS)
def test_limits_leave_room_for_a_hundred_megapixels(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(io.BytesIO(PHOTOS[kind])) as image:
            check_cost(image, PHOTOS[kind])


@pytest.mark.parametrize("kind", ["ICO", "TGA"])
def test_formats_that_are_not_of_photos_are_refused(kind):
    with pytest.raises(DataError, match="not an image, or in a format that is not supported"):
        decode(_flat(kind, (16, 16)), "x")


NOISE = Image.fromarray(RANDOM.integers(0, 256, (40, 30, 3), dtype=np.uint8))
MODES = {
    "colour": _encoded(NOISE),
    "grey": _encoded(NOISE.convert("L")),
    "one bit": _encoded(NOISE.convert("1")),
    "palette": _encoded(NOISE.quantize(16)),
    "palette, transparent": _encoded(NOISE.quantize(16), transparency=3),
    "palette, alphas": _encoded(NOISE.quantize(16), transparency=bytes(range(16))),
    "colour, transparent": _encoded(NOISE, transparency=tuple(np.asarray(NOISE)[3, 4].tolist())),
    "alpha": _encoded(Image.fromarray(RANDOM.integers(0, 256, (40, 30, 4), dtype=np.uint8))),
    "grey and alpha": _encoded(NOISE.convert("LA")),
    "16 bits": _encoded(Image.fromarray(RANDOM.integers(0, 2**16, (40, 30)).astype(np.uint16))),
    "32 bits": _encoded(Image.fromarray(RANDOM.integers(-9, 99999, (40, 30), dtype=np.int32)), "TIFF"),
    "cmyk": _encoded(NOISE.convert("CMYK"), "TIFF"),
    "gif": _encoded(NOISE.quantize(16), "GIF", transparency=3),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_strips_are_converted_like_the_whole_image(mode, monkeypatch):
    whole = decode(MODES[mode], "x")
    monkeypatch.setattr(pixels, "_STRIP", 30 * 7)
    np.testing.assert_array_equal(decode(MODES[mode], "x"), whole)


@pytest.mark.parametrize("number", range(1, 9))
def test_every_orientation_is_turned_as_pillow_does(number):
    turns = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE",
             6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}  # fmt: skip
    exif = Image.Exif()
    exif[0x112] = number
    expected = NOISE.transpose(Image.Transpose[turns[number]]) if number > 1 else NOISE
    np.testing.assert_array_equal(decode(_encoded(NOISE, exif=exif), "x"), np.asarray(expected))
