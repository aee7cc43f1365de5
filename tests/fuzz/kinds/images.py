"""Image files of every format, and headers that promise more than there is."""

import io
import struct
import zlib
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, features

from infoshot.core.pixels import decode
from infoshot.images.decoding import FileLocation, is_image_name, read_crop
from tests.fuzz.kinds.made import make_image, write
from tests.fuzz.mutations import INTEGERS, damage
from tests.fuzz.runner import Case, Kind


class Images(Kind):
    """One image file, decoded alone or as a network sees it."""

    name, fast = "image", True

    def prepare(self, intact: Path) -> None:
        for name, make in _LARGE.items():
            write(intact / "large" / name, make())
        for name, (kind, options) in _FORMATS.items():
            write(intact / name, make_image(3, kind, (64, 48), **options))
        grey = np.asarray(Image.open(io.BytesIO(make_image(5, size=(64, 48)))).convert("L"))
        for name, image in {
            "16bit.png": Image.fromarray(grey.astype(np.uint16) * 257),
            "palette.png": Image.fromarray(grey).quantize(16),
            "alpha.png": Image.fromarray(grey).convert("RGBA"),
            "bits.tif": Image.fromarray(grey).convert("1"),
            "cmyk.jpg": Image.fromarray(grey).convert("CMYK"),
            "16bit.tif": Image.fromarray(grey.astype(np.uint16) * 257),
        }.items():
            image.save(intact / name)
        frames = [Image.open(io.BytesIO(make_image(n, size=(32, 24)))) for n in range(3)]
        for name in ("moving.gif", "moving.webp", "moving.png", "pages.tif"):
            frames[0].save(intact / name, save_all=True, append_images=frames[1:])

    def check(self, case: Case) -> None:
        for path in filter(is_image_name, case.intact.glob("*.*")):
            assert decode(path.read_bytes(), path.name).shape[2] == 3

    def attempt(self, case: Case) -> None:
        random = case.random
        if random.random() < 0.1:
            name = random.choice(sorted(_LARGE))
            content, done = (case.intact / "large" / name).read_bytes(), "many pixels"
        else:
            source = random.choice(sorted(case.intact.glob("*.*")))
            other = random.choice(sorted(case.intact.glob(f"*{source.suffix}"))).read_bytes()
            name, content = source.name, source.read_bytes()
            if source.suffix == ".png" and random.random() < 0.5:
                content, done = _change_chunk(random, content)
            else:
                content, done = damage(random, content, other)
        case.note(f"{name}: {done}")
        if random.random() < 0.5:
            pixels = decode(content, "image", at_least=random.choice((None, 16, 168)))
            assert pixels.dtype == np.uint8
            assert pixels.ndim == 3
            assert pixels.shape[2] == 3
        else:
            write(case.work / name, content)
            _, pixels = read_crop(FileLocation(case.work / name), 92, 84)
            assert pixels.shape == (84, 84, 3)


_FORMATS = {
    "plain.jpg": ("JPEG", {}),
    "progressive.jpg": ("JPEG", {"progressive": True}),
    "exif.jpg": ("JPEG", {"exif": Image.Exif().tobytes() + b"\0" * 4, "quality": 30}),
    "plain.png": ("PNG", {}),
    "plain.gif": ("GIF", {}),
    "plain.webp": ("WEBP", {}),
    "lossless.webp": ("WEBP", {"lossless": True}),
    "plain.bmp": ("BMP", {}),
    "plain.tif": ("TIFF", {}),
    "lzw.tif": ("TIFF", {"compression": "tiff_lzw"}),
    "deflate.tif": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    "jpeg.tif": ("TIFF", {"compression": "jpeg"}),
    "plain.ppm": ("PPM", {}),
}
if features.check("jpg_2000"):
    _FORMATS["plain.jp2"] = ("JPEG2000", {})
if features.check("avif"):
    _FORMATS["plain.avif"] = ("AVIF", {})


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(content: bytes) -> list[tuple[bytes, bytes]]:
    found, place = [], 8
    while place < len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        found.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    return found


def _change_chunk(random: Random, content: bytes) -> tuple[bytes, str]:
    """Change, add, remove or move a chunk of a PNG; the checksums are right."""
    chunks = _chunks(content)
    number = random.randrange(len(chunks))
    kind, data = chunks[number]
    how = random.choice(("header", "content", "remove", "repeat", "move", "add"))
    if how == "header":
        number, kind = 0, b"IHDR"
        fields = list(struct.unpack(">IIBBBBB", chunks[0][1]))
        place = random.randrange(7)
        fields[place] = random.choice(INTEGERS) % (2**32 if place < 2 else 256)
        chunks[0] = (kind, struct.pack(">IIBBBBB", *fields))
    elif how == "content":
        chunks[number] = (kind, damage(random, data)[0])
    elif how == "remove":
        del chunks[number]
    elif how == "repeat":
        chunks[number:number] = [(kind, data)] * random.choice((1, 2, 500))
    elif how == "move":
        chunks.insert(random.randrange(len(chunks)), chunks.pop(number))
    else:
        odd = (
            b"tRNS",
            b"PLTE",
            b"iCCP",
            b"gAMA",
            b"tEXt",
            b"zTXt",
            b"iTXt",
            b"eXIf",
            b"acTL",
            b"fcTL",
            b"fdAT",
            b"pHYs",
            b"cHRM",
        )
        more = random.choice(
            (b"", b"\0" * 12, random.randbytes(40), b"k\0\0" + zlib.compress(bytes(5_000_000)))
        )
        chunks.insert(random.randint(1, len(chunks)), (random.choice(odd), more))
    return content[:8] + b"".join(
        _chunk(*chunk) for chunk in chunks
    ), f"{how} of the chunk {kind.decode()}"


def _blank_png(width: int, height: int, depth: int, colour: int, *, share: float = 1.0) -> bytes:
    """Write a PNG of many pixels in few bytes, with a share of its rows."""
    per_row = 1 + (width * depth * {0: 1, 2: 3, 3: 1, 6: 4}[colour] + 7) // 8
    data = _packed_zeros(per_row * max(1, int(share * height)))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", bytes(3)), (b"IDAT", data), (b"IEND", b"")]
    parts = [chunk for chunk in chunks if colour == 3 or chunk[0] != b"PLTE"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in parts)


def _packed_zeros(n: int) -> bytes:
    """Return what zlib makes of ``n`` zeros, without packing them all."""
    block = 2**20
    packer = zlib.compressobj(9, wbits=-15)
    once = packer.compress(bytes(block)) + packer.flush(zlib.Z_FULL_FLUSH)
    rest = packer.compress(bytes(n % block)) + packer.flush()
    return b"\x78\xda" + once * (n // block) + rest + struct.pack(">HH", n % 65_521, 1)


def _many_scans(side: int) -> bytes:
    """Write a progressive JPEG of many pixels whose last scan occurs many times."""
    stream = io.BytesIO()
    Image.new("L", (side, side)).save(stream, "JPEG", progressive=True)
    content = stream.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * (60_000 // len(last)) + content[-2:]


# A few thousand bytes that decode to hundreds of megabytes; made once, since that takes seconds.
_LARGE = {
    "large.png": lambda: _blank_png(9400, 9400, 8, 2),
    "large16.png": lambda: _blank_png(9400, 9400, 16, 2),
    "alpha16.png": lambda: _blank_png(6000, 6000, 16, 6),
    "grey16.png": lambda: _blank_png(9400, 9400, 16, 0),
    "one-row.png": lambda: _blank_png(9400, 9400, 16, 6, share=1e-4),
    "half.png": lambda: _blank_png(5000, 5000, 8, 6, share=0.5),
    "bits.png": lambda: _blank_png(20_000, 4_000, 1, 0),
    "palette.png": lambda: _blank_png(9000, 9000, 8, 3),
    "scans.jpg": lambda: _many_scans(4000),
    "scans-small.jpg": lambda: _many_scans(1000),
}


KINDS = (Images(),)
