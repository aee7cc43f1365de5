"""About two hundred odd files, as they occur among real photos or are made by attackers."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

READABLE, UNREADABLE, EITHER = "readable", "unreadable", "either"
_RANDOM = np.random.default_rng(0)
_PIXELS = _RANDOM.integers(0, 256, (12, 16, 3), dtype=np.uint8)
UPRIGHT = Image.fromarray(_PIXELS).resize((64, 48))
_GREY = UPRIGHT.convert("L")
_FRAMES = [UPRIGHT, UPRIGHT.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]


def make_odd_files(folder: Path) -> dict[Path, str]:
    """Write them below ``folder`` and return for each whether it can be decoded.

    This is about the content, whatever the name; ``"either"`` depends on the version and the build
    of Pillow. The result does not list folders and links to folders, though some are named like
    images. For the superuser it lacks a file without permissions. The pipe and the link to a device
    must never be opened, since they do not end.
    """
    found = {}
    for make in (_damaged, _sizes, _modes, _animations, _metadata, _not_images, _extensions):
        for name, (content, expectation) in make().items():
            path = folder / make.__name__.strip("_") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            found[path] = expectation
    found |= _names(folder / "names")
    found |= _places(folder / "places")
    return found


def _encoded(image=UPRIGHT, kind="PNG", **options):
    stream = io.BytesIO()
    image.copy().save(stream, kind, **options)  # saving changes the image
    return stream.getvalue()


JPEG, PNG = _encoded(kind="JPEG"), _encoded()


def _damaged():
    """Truncated or changed; an image without its last bytes may be readable."""
    whole = {
        "jpg": JPEG,
        "progressive.jpg": _encoded(kind="JPEG", progressive=True),
        "png": PNG,
        "gif": _encoded(kind="GIF"),
        "webp": _encoded(kind="WEBP"),
        "bmp": _encoded(kind="BMP"),
        "tif": _encoded(kind="TIFF"),
        "lzw.tif": _encoded(kind="TIFF", compression="tiff_lzw"),
        "ppm": _encoded(kind="PPM"),
    }
    files = {"empty.jpg": (b"", UNREADABLE), "empty.png": (b"", UNREADABLE)}
    for kind, content in whole.items():
        for part in (0.02, 0.6):
            cut = content[: int(part * len(content))]
            files[f"first {part:.0%}.{kind}"] = (cut, UNREADABLE)
    for content, kind in ((JPEG, "jpg"), (PNG, "png")):
        for length in (1, 4, 8, 20):
            files[f"first {length} bytes.{kind}"] = (content[:length], UNREADABLE)
        for missing in (1, 2, 12):
            files[f"without the last {missing}.{kind}"] = (content[:-missing], EITHER)
        for number in range(2):
            scratched = bytearray(content)
            for place in _RANDOM.integers(len(content) // 2, len(content), 20):
                scratched[place] ^= 0xFF
            files[f"scratched {number}.{kind}"] = (bytes(scratched), EITHER)
    files["zeros at the end.jpg"] = (JPEG + bytes(10_000), READABLE)
    files["two in one.jpg"] = (JPEG + JPEG, READABLE)
    files["zeros inside.jpg"] = (JPEG[:-400] + bytes(400), EITHER)
    return files


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width, height, depth, colour, data, interlaced=0):
    """A PNG with any header, for kinds that Pillow does not write; ``data`` is compressed."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _black(width, height):
    """One bit per pixel, compressed row by row, so that 400 million pixels need little memory."""
    compressor = zlib.compressobj(1)
    rows = [compressor.compress(bytes(1 + (width + 7) // 8)) for _ in range(height)]
    return _png(width, height, 1, 0, b"".join(rows) + compressor.flush())


def _resized_jpeg(width, height):
    """The small JPEG with another size in its header."""
    frame = JPEG.index(b"\xff\xc0")
    return JPEG[: frame + 5] + struct.pack(">HH", height, width) + JPEG[frame + 9 :]


def _sizes():
    dot = Image.new("RGB", (1, 1), (1, 2, 3))
    files = {
        f"1 x 1.{kind}": (_encoded(dot, kind), READABLE)
        for kind in ("jpeg", "png", "gif", "bmp", "webp", "tiff", "ppm")
    }
    bmp = bytearray(_encoded(kind="BMP"))
    bmp[22:26] = struct.pack("<i", -48)  # rows from top to bottom
    files["upside down.bmp"] = (bytes(bmp), READABLE)
    bmp[18:26] = struct.pack("<ii", 20_000, 20_000)
    gif = bytearray(_encoded(kind="GIF"))
    gif[6:10] = struct.pack("<HH", 65_535, 65_535)
    too_much = {
        "20000 x 20000.png": _black(20_000, 20_000),
        "20000 x 20000 header.png": _png(20_000, 20_000, 8, 2, zlib.compress(b"0")),
        "largest header.png": _png(2**31 - 1, 2**31 - 1, 16, 6, zlib.compress(b"0")),
        "20000 x 20000.jpg": _resized_jpeg(20_000, 20_000),
        "65535 x 65535.jpg": _resized_jpeg(65_535, 65_535),
        "20000 x 20000.bmp": bytes(bmp),
        "65535 x 65535.gif": bytes(gif),
        "20000 x 20000.ppm": b"P6 20000 20000 255 ",
        "no width.png": _png(0, 10, 8, 2, zlib.compress(b"")),
        "no height.jpg": _resized_jpeg(10, 0),
    }
    for width, height in ((1, 5000), (5000, 1), (1, 101)):
        too_much[f"{width} x {height}.png"] = _encoded(Image.new("RGB", (width, height)))
    files |= {name: (content, UNREADABLE) for name, content in too_much.items()}
    files["1 x 100.png"] = (_encoded(Image.new("RGB", (1, 100))), READABLE)
    return files


def _modes():
    sixteen = Image.fromarray(np.asarray(_GREY).astype(np.uint16) * 257)
    whole = Image.fromarray(np.asarray(_GREY).astype(np.int32) * 257)
    real = Image.fromarray(np.asarray(_GREY).astype(np.float32) / 255)
    palette = UPRIGHT.quantize(16)
    wide = zlib.compress((b"\0" + bytes(range(48))) * 8)  # 8 rows of 8 pixels of 6 bytes
    readable = {
        "grey.png": _encoded(_GREY),
        "grey.jpg": _encoded(_GREY, "JPEG"),
        "grey and alpha.png": _encoded(UPRIGHT.convert("LA")),
        "alpha.png": _encoded(UPRIGHT.convert("RGBA")),
        "alpha.webp": _encoded(UPRIGHT.convert("RGBA"), "WEBP"),
        "alpha.tif": _encoded(UPRIGHT.convert("RGBA"), "TIFF"),
        "transparent.png": _encoded(Image.new("RGBA", (9, 9), (0, 0, 0, 0))),
        "palette.png": _encoded(palette),
        "palette, transparent.png": _encoded(palette, transparency=0),
        "palette, alphas.png": _encoded(palette, transparency=bytes(range(16))),
        "palette.bmp": _encoded(palette, "BMP"),
        "palette.tif": _encoded(palette, "TIFF"),
        "palette, transparent.gif": _encoded(palette, "GIF", transparency=3),
        "one bit.png": _encoded(_GREY.convert("1")),
        "one bit.tif": _encoded(_GREY.convert("1"), "TIFF", compression="group4"),
        "one bit.pnm": _encoded(_GREY.convert("1"), "PPM"),
        "16 bits.png": _encoded(sixteen),
        "16 bits.tif": _encoded(sixteen, "TIFF"),
        "16 bits.pgm": _encoded(sixteen, "PPM"),
        "16 bits, colours.png": _png(8, 8, 16, 2, wide),
        "2 bits.png": _png(8, 8, 2, 0, zlib.compress(b"\0\x1b\x1b" * 8)),
        "interlaced.png": _png(1, 1, 8, 2, zlib.compress(b"\0\1\2\3"), interlaced=1),
        "32 bits.tif": _encoded(whole, "TIFF"),
        "cmyk.jpg": _encoded(UPRIGHT.convert("CMYK"), "JPEG"),
        "cmyk.tif": _encoded(UPRIGHT.convert("CMYK"), "TIFF"),
        "ycbcr.tif": _encoded(UPRIGHT.convert("YCbCr"), "TIFF"),
        "jpeg inside.tif": _encoded(kind="TIFF", compression="jpeg"),
        "lossless.webp": _encoded(kind="WEBP", lossless=True),
        "every pixel.jpg": _encoded(kind="JPEG", subsampling=0, quality=100),
    }
    files = {name: (content, READABLE) for name, content in readable.items()}
    files["float.tif"] = (_encoded(real, "TIFF"), UNREADABLE)
    files["lab.tif"] = (_encoded(Image.new("LAB", (8, 8)), "TIFF"), EITHER)
    return files


def _animations():
    more = {"save_all": True, "append_images": [frame.copy() for frame in _FRAMES[1:]]}
    kinds = {"gif": "GIF", "webp": "WEBP", "png": "PNG", "tif": "TIFF", "jpg": "MPO"}
    files = {
        f"moving.{extension}": (_encoded(kind=kind, **more), READABLE)
        for extension, kind in kinds.items()
    }
    gif = files["moving.gif"][0]
    files["second frame cut.gif"] = (gif[: len(gif) * 3 // 4], EITHER)
    files["no frames.gif"] = (b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0) + b";", UNREADABLE)
    return files


def _segment(kind, payload):
    """The small JPEG with a segment before all others."""
    return JPEG[:2] + b"\xff" + kind + struct.pack(">H", len(payload) + 2) + payload + JPEG[2:]


def _exif(*tags):
    """Tags as (number, type, count, four bytes), in a JPEG."""
    entries = b"".join(struct.pack("<HHI", *tag[:3]) + tag[3] for tag in tags)
    start = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", len(tags))
    return _segment(b"\xe1", start + entries + bytes(4))


def _metadata():
    sideways = (0x112, 3, 1, b"\6\0\0\0")
    beyond = struct.pack("<I", 60_000)
    noise = _RANDOM.bytes(200)
    comment = b"\xff\xfe" + struct.pack(">H", 65_000) + bytes(64_998)
    readable = {
        "exif of noise.jpg": _segment(b"\xe1", b"Exif\0\0" + noise),
        "exif of nothing.jpg": _segment(b"\xe1", b"Exif\0\0"),
        "exif begins beyond.jpg": _segment(b"\xe1", b"Exif\0\0II*\0" + beyond),
        "exif orientation as text.jpg": _exif((0x112, 2, 2, b"6\0\0\0")),
        "exif orientation beyond.jpg": _exif((0x112, 5, 1, beyond)),
        "exif resolution as text.jpg": _exif(sideways, (0x11A, 2, 4, b"abc\0")),
        "exif resolution not a number.jpg": _exif(sideways, (0x11A, 11, 1, b"\xff\xff\xff\x7f")),
        "exif maker beyond.jpg": _exif(sideways, (0x10F, 2, 100, beyond)),
        "exif in a circle.jpg": _exif(sideways, (0x8769, 4, 1, b"\x08\0\0\0")),
        "exif of words.png": PNG[:33] + _chunk(b"eXIf", b"no exif at all") + PNG[33:],
        "profile of noise.jpg": _segment(b"\xe2", b"ICC_PROFILE\0\1\1" + noise),
        "profile 5 of 2.jpg": _segment(b"\xe2", b"ICC_PROFILE\0\5\2" + noise),
        "profile of noise.png": _encoded(icc_profile=noise),
        "profile not compressed.png": PNG[:33] + _chunk(b"iCCP", b"name\0\0no") + PNG[33:],
        "megabytes of comments.jpg": JPEG[:2] + comment * 40 + JPEG[2:],
        "much text.png": PNG[:33] + _chunk(b"tEXt", b"k\0" + b"x" * 900_000) + PNG[33:],
        "photoshop of noise.jpg": _segment(b"\xed", b"Photoshop 3.0\0008BIM" + noise),
        "more pictures of noise.jpg": _segment(b"\xe2", b"MPF\0" + noise),
    }
    for number in range(10):  # 1 to 8 are defined
        exif = Image.Exif()
        exif[0x112] = number
        readable[f"orientation {number}.png"] = _encoded(exif=exif)
    bomb = zlib.compress(bytes(3_000_000))
    strict = {
        "text bomb.png": PNG[:33] + _chunk(b"zTXt", b"k\0\0" + bomb) + PNG[33:],
        "profile without a number.jpg": _segment(b"\xe2", b"ICC_PROFILE\0"),
        "short resolution.png": PNG[:33] + _chunk(b"pHYs", b"\0") + PNG[33:],
        "short transparency.png": PNG[:33] + _chunk(b"tRNS", b"\0") + PNG[33:],
    }
    files = {name: (content, READABLE) for name, content in readable.items()}
    return files | {name: (content, EITHER) for name, content in strict.items()}


def _not_images():
    """Files that are not images, mostly under the name of one."""
    boxes = struct.pack(">I", 24) + b"ftyp%b" + bytes(4) + b"mif1%b" + bytes(64)
    files = {
        "document.pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj<<>>endobj\n%%EOF\n",
        "document.jpg": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj<<>>endobj\n%%EOF\n",
        "page.html": b"<!doctype html><script>alert(1)</script>",
        "not found.jpg": b"<!doctype html><title>404 Not Found</title>" * 9,
        "drawing.png": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        "photo.heic": boxes % (b"heic", b"heic"),
        "heic.jpg": boxes % (b"heic", b"heic"),
        "avif without pixels.jpg": boxes % (b"avif", b"avif"),
        "film.mp4": boxes % (b"isom", b"mp42"),
        "film.jpg": boxes % (b"isom", b"mp42"),
        "noise.jpg": _RANDOM.bytes(5000),
        "noise.png": _RANDOM.bytes(5000),
        "text.jpg": b"hello, world\n" * 50,
        "blank.jpg": b" \n",
        "zeros.jpg": bytes(5000),
        "archive.jpg": b"PK\x03\x04" + bytes(100),
        "packed.png": b"\x1f\x8b\x08\0" + bytes(100),
        "program.jpg": b"\x7fELF\2\1\1" + bytes(100),
        "pointer.png": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "beginning.jpg": b"\xff\xd8\xff\xe0" + bytes(100),
        "beginning.png": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "beginning.gif": b"GIF89a" + bytes(100),
        "beginning.webp": b"RIFF\x64\0\0\0WEBPVP8X" + bytes(100),
        "beginning.bmp": b"BM" + bytes(100),
        "beginning.tif": b"II*\0\x08\0\0\0" + bytes(100),
        "circle.tif": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
        "beyond.tif": b"II*\0\xff\xff\xff\x7f",
        "many tags.tif": b"II*\0\x08\0\0\0\xff\xff" + bytes(100),
        "no pixels.ppm": b"P6 10 10 255 ",
        "not numbers.ppm": b"P6 ten ten 255 ",
        "no scan.jpg": JPEG[: JPEG.index(b"\xff\xda")] + b"\xff\xd9",
    }
    found = {name: (content, UNREADABLE) for name, content in files.items()}
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    found["postscript.jpg"] = (eps, EITHER)  # where Ghostscript is installed
    return found


def _extensions():
    files = {
        f"upper.{kind}": (_encoded(kind=kind), READABLE) for kind in ("JPEG", "PNG", "GIF", "WEBP")
    }
    files |= {"upper.JPG": (JPEG, READABLE), "mixed.Jpg": (JPEG, READABLE)}
    wrong = {"gif": PNG, "jpg": PNG, "png": JPEG, "tiff": JPEG, "webp": PNG, "bmp": JPEG}
    files |= {f"another.{kind}": (content, READABLE) for kind, content in wrong.items()}
    files |= {f"{kind}.jpg": (_encoded(kind=kind), READABLE) for kind in ("GIF", "TIFF", "BMP")}
    files |= {"two.png.jpg": (JPEG, READABLE), "photo.txt": (JPEG, READABLE)}
    return files | {"none": (JPEG, READABLE), "dot.": (JPEG, READABLE)}


NAMES = [
    "with space.png", " space before.png", "space after .png", "single'quote.png",
    'double"quote.png', "new\nline.png", "return\r.png", "tab\t.png", "bell\a.png",
    "escape\x1b[31m.png", "🦊.png", "👩\u200d👧.png", "<script>alert(1)<&>.png", "&amp;.png",
    "--help.png", "-rf.png", "=1+1.png", "=HYPERLINK(1).png", "+1.png", "@SUM(1).png", "100%.png",
    "%2e%2e%2f.png", "%s%n.png", "back\\slash.png", "C:\\photo.png", "*.png", "?.png", "[a].png",
    "{a,b}.png", "$HOME.png", "`id`.png", ";id.png", "|id.png", "~.png", "#1.png", "a,b.png",
    "a;b.png", "a:b.png", "a..png", "con.png", "e\u0301.png", "\u00e9.png", "\u202egnp.exe.png",
    "\u200fmark.png", "\ufeffbom.png", "zero\u200bwidth.png", "line\u2028separator.png",
    "日本語.png", "עברית.png", "Straße.png", "case.png", "CASE.png", f"{'long' * 61}ab.png",
    f"{'é' * 123}.png",
]  # fmt: skip
_BYTES = [b"latin\xe9.png", b"\xff\xfe.png", b"half\xf0\x9f.png"]


def _names(folder):
    """Readable images under every name that the file system accepts."""
    folder.mkdir(parents=True)
    found = {}
    for name in [*NAMES, *map(os.fsdecode, _BYTES)]:
        try:
            (folder / name).write_bytes(PNG)
        except (OSError, ValueError):  # some file systems refuse such names
            continue
        found[folder / name] = READABLE
    return found


def _places(folder):
    """Folders, links, a pipe, and a file that may not be read."""
    inside = {}
    for name in ("album.jpg", "empty album.png", "deep/er/and/deeper"):
        (folder / name).mkdir(parents=True)
    for place in ("album.jpg/inside.png", "deep/er/and/deeper/inside.png"):
        (folder / place).write_bytes(PNG)
        inside[folder / place] = READABLE
    links = {
        "link.png": ("album.jpg/inside.png", READABLE),
        "link to link.png": ("link.png", READABLE),
        "broken link.png": ("nothing.png", UNREADABLE),
        "link to itself.png": ("link to itself.png", UNREADABLE),
        "link to zeros.png": ("/dev/zero", UNREADABLE),
    }
    for name, (target, expectation) in links.items():
        (folder / name).symlink_to(target)
        inside[folder / name] = expectation
    (folder / "deep" / "circle").symlink_to("..", target_is_directory=True)
    (folder / "link to folder.png").symlink_to("album.jpg", target_is_directory=True)
    os.mkfifo(folder / "pipe.jpg")
    inside[folder / "pipe.jpg"] = UNREADABLE
    if os.geteuid():
        (folder / "forbidden.png").write_bytes(PNG)
        (folder / "forbidden.png").chmod(0)
        inside[folder / "forbidden.png"] = UNREADABLE
    return inside
