"""Pickles: damage, functions that they call, and constructions that burn time or memory."""

import itertools
import pickle
import pickletools
import struct
from pathlib import Path
from random import Random

import numpy as np

from infoshot import inspect_dataset
from infoshot.core.errors import InfoshotError
from tests.fuzz.kinds.made import make_image, write
from tests.fuzz.mutations import damage
from tests.fuzz.runner import Case, Kind

_GLOBALS = (
    b"os\nsystem", b"posix\nsystem", b"builtins\nexec", b"builtins\neval", b"builtins\ngetattr",
    b"builtins\nopen", b"subprocess\ncheck_output", b"numpy\nndarray", b"numpy\ndtype",
    b"numpy\nfromfile", b"numpy\nmemmap", b"numpy\nload", b"numpy.core.multiarray\n_reconstruct",
    b"numpy._core.multiarray\n_reconstruct", b"numpy._core.multiarray\nscalar",
    b"numpy._core.numeric\n_frombuffer", b"_codecs\nencode", b"_codecs\ndecode", b"codecs\ndecode",
    b"collections\nOrderedDict", b"collections\ndeque", b"copyreg\n_reconstructor",
    b"builtins\nbytearray", b"builtins\nlist", b"builtins\nrange", b"numpy\nzeros",
    b"numpy.core.multiarray\narange", b"torch\nload", b"pathlib\nPath", b"logging.config\nlistConfig",
)  # fmt: skip
_TOUCH = b"touch made"
_PLAIN = (
    b"K\x05", b"J\xff\xff\xff\x7f", b"N", b"\x88", b"G\x7f\xf8\0\0\0\0\0\0", b"]", b"}", b")",
    b"U\x0a" + _TOUCH, b"X\x0a\0\0\0" + _TOUCH, b"C\x02<f", b"U\x02<f", b"U\x02|O", b"X\x02\0\0\0f4",
    b"K\x08K\x08\x86", b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86", b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
    b"C\x08ABCDEFGH", b"X\x06\0\0\0latin1", b"X\x0b\0\0\0idna\0\0\0\0\0\0\0", b"K\x00", b"J\0\0\0\x80",
)  # fmt: skip


def damage_pickle(random: Random, content: bytes) -> tuple[bytes, str]:
    """Change opcodes or bytes, or write a pickle that calls functions; return what was done too."""
    how = random.random()
    if how < 0.3:
        return damage(random, content)
    if how < 0.55:
        return _change_opcodes(random, content), "changed opcodes"
    if how < 0.65:
        return _expand(random)
    return _call(random, content)


def _call(random: Random, content: bytes) -> tuple[bytes, str]:
    """Write a pickle that calls a function, alone or in front of an ordinary one."""
    name = random.choice(_GLOBALS)
    reference = b"c" + name + b"\n"
    if random.random() < 0.3:
        parts = (b"X" + struct.pack("<I", len(part)) + part for part in name.split(b"\n"))
        reference = b"".join(parts) + b"\x93"
    arguments = b"(" + b"".join(random.choices(_PLAIN, k=random.randint(0, 7))) + b"t"
    call = random.choice((b"R", b"R", b"R", b"\x81"))
    state = b""
    if random.random() < 0.4:
        state = b"(" + b"".join(random.choices(_PLAIN, k=random.randint(1, 6))) + b"tb"
    body = reference + arguments + call + state
    whole = random.choice((b"\x80\x04" + body + b".", body + b"0" + content, body + b"."))
    return whole, f"calls {name.decode().replace(chr(10), '.')}"


def _change_opcodes(random: Random, content: bytes) -> bytes:
    """Remove, repeat or exchange whole opcodes."""
    try:
        places = [place for _, _, place in pickletools.genops(content)]
    except Exception:
        return content[: len(content) // 2]
    cuts = [*places, len(content)]
    parts = [content[a:b] for a, b in itertools.pairwise(cuts)]
    for _ in range(random.choice((1, 1, 2, 4))):
        number, other = random.randrange(len(parts)), random.randrange(len(parts))
        how = random.randrange(4)
        if how == 0:
            parts[number] = b""
        elif how == 1:
            parts[number] *= random.choice((2, 3, 1000))
        elif how == 2:
            parts[number], parts[other] = parts[other], parts[number]
        else:
            parts.insert(
                number,
                random.choice((*_PLAIN, b"t", b"R", b"b", b"0", b"2", b"(", b"s", b"a", b"u")),
            )
    return b"".join(parts)


def _expand(random: Random) -> tuple[bytes, str]:
    """Write small pickles of large things."""
    twice = b"".join(b"(" + b"h%c" % n * 10 + b"lq%c" % (n + 1) for n in range(100))
    large = struct.pack("<Q", 2**40)
    return random.choice(
        (
            (b"\x80\x04](" + b"]" * 100_000 + b".", "nested lists"),
            (b"\x80\x02]q\0" + twice + b".", "lists of lists of lists"),
            (b"\x80\x04\x8e" + large + b"x.", "bytes of a terabyte"),
            (b"\x80\x05\x96" + large + b"x.", "bytearray of a terabyte"),
            (b"\x80\x04\x95" + large + b"K\1.", "frame of a terabyte"),
            (b"\x80\x04\x8d" + large + b"x.", "text of a terabyte"),
            (b"\x80\x02\x8b" + struct.pack("<I", 2**31 - 1) + b"\1.", "integer of gigabytes"),
            (b"I" + b"9" * 100_000 + b"\n.", "integer of many digits"),
            (b"L" + b"9" * 300_000 + b"L\n.", "long integer of many digits"),
            (b"\x80\x02r\xff\xff\xff\xff.", "far place of the memo"),
            (b"\x80\x02K\1r\xff\xff\xff\x7f.", "memo of gigabytes"),
            (b"\x80\x04K\1p999999999\n.", "memo of a billion places"),
        )
    )


class Pickles(Kind):
    """The distributed pickles of mini-ImageNet and tiered-ImageNet."""

    name, fast = "pickle", True

    def prepare(self, intact: Path) -> None:
        images = np.stack([np.full((5, 6, 3), n, np.uint8) for n in range(6)])
        mini = {"image_data": images, "class_dict": {"n01": [0, 1, 2], "n02": np.array([3, 4, 5])}}
        png = [np.frombuffer(make_image(n), np.uint8)[None] for n in range(4)]
        labels = {"label_specific": np.array([0, 1, 0, 1]), "label_specific_str": ["a", "b"]}
        for protocol in (0, 1, 2, 4, 5):
            folder = intact / str(protocol)
            for name, value in (("mini-imagenet-cache-test.pkl", mini),
                                ("test_images_png.pkl", png), ("test_labels.pkl", labels)):  # fmt: skip
                write(folder / name, pickle.dumps(value, protocol))

    def check(self, case: Case) -> None:
        for folder in case.intact.iterdir():
            for dataset in ("mini-imagenet", "tiered-imagenet"):
                assert not inspect_dataset(dataset, folder, progress=False).broken

    def attempt(self, case: Case) -> None:
        random = case.random
        protocol = random.choice("01245")
        names = {"mini-imagenet": ("mini-imagenet-cache-test.pkl",),
                 "tiered-imagenet": ("test_images_png.pkl", "test_labels.pkl")}  # fmt: skip
        dataset = random.choice(sorted(names))
        damaged = random.choice(names[dataset])
        for name in names[dataset]:
            content = (case.intact / protocol / name).read_bytes()
            if name == damaged:
                content, done = damage_pickle(random, content)
                case.note(f"{name}, protocol {protocol}: {done}")
            write(case.work / "root" / name, content)
        before = sorted(case.work.rglob("*"))
        try:
            inspect_dataset(
                dataset, case.work / "root", decode=random.random() < 0.7, progress=False
            )
        except InfoshotError:
            assert sorted(case.work.rglob("*")) == before, "a file was made"
            raise
        assert sorted(case.work.rglob("*")) == before, "a file was made"


KINDS = (Pickles(),)
