"""Damage to files by their structure: safetensors, npy, zip and tar."""

import io
import json
import struct
import tarfile
import zipfile
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.mutations import INTEGERS, TEXTS, change_value, damage

_DTYPES = (
    "F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "I64", "I32",
    "I16", "I8", "U8", "U16", "U32", "U64", "BOOL", "C64", "f32", "", "X9",
)  # fmt: skip
_SHAPES: tuple[Any, ...] = (
    [], [0], [0, 8], [8, 0], [1], [-1, 8], [2**31, 2**31], [2**62, 8], [2**63, 8], [2**64, 8],
    [10**30], [4, 2, 5], [1.5, 8], ["8", 8], [True, 8], None, 8, {}, [[8]], [1] * 70,
)  # fmt: skip


def damage_safetensors(random: Random, content: bytes, other: bytes = b"") -> tuple[bytes, str]:
    """Change the header of a safetensors file, or its bytes; return what was done too."""
    if random.random() < 0.3:
        return damage(random, content, other)
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    done = [_change_header(random, header) for _ in range(random.choice((1, 1, 2)))]
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8)
    length = len(text)
    if random.random() < 0.1:
        length = random.choice(
            (0, 1, 7, length - 1, length + 1, length + 8, 10**8 + 1, 2**63, 2**64 - 1)
        )
        done.append("length of the header")
    if random.random() < 0.1:
        data = random.choice((b"", data[:-1], data + b"\0", data * 2))
        done.append("length of the data")
    return length.to_bytes(8, "little") + text + data, ", ".join(done)


def _change_header(random: Random, header: dict[str, Any]) -> str:
    """Change a tensor's entry, the metadata (JSON inside JSON), or anything."""
    tensors = [name for name in header if name != "__metadata__"]
    metadata = header.get("__metadata__")
    how = random.choice(("dtype", "shape", "offsets", "metadata", "metadata", "any", "name"))
    if how == "metadata" and isinstance(metadata, dict) and metadata:
        return _change_metadata(random, metadata)
    name = random.choice(tensors) if tensors else ""
    entry = header.get(name)
    if how == "any" or not isinstance(entry, dict):
        return change_value(random, header)
    if how == "dtype":
        entry["dtype"] = random.choice(_DTYPES)
    elif how == "shape":
        shape = entry.get("shape")
        turned = shape[::-1] if isinstance(shape, list) else [1]
        entry["shape"] = random.choice((*_SHAPES, turned))
    elif how == "offsets":
        pair = entry.get("data_offsets")
        is_pair = isinstance(pair, list) and [type(number) for number in pair] == [int, int]
        start, stop = pair if is_pair else (0, 0)
        entry["data_offsets"] = random.choice(
            (
                [start + 1, stop + 1],
                [start, stop - 1],
                [stop, start],
                [0, 0],
                [start],
                [start, stop, 9],
                [0, 2**63],
                [-1, stop],
                [start, 2**64],
                [start + 8, stop + 8],
                ["0", "8"],
                None,
            )
        )
    else:
        other = random.choice((*TEXTS[:30], *tensors, "features", "labels", "__metadata__"))
        header[other] = header.pop(name)
    return f"{how} of {name!r}"


def _change_metadata(random: Random, metadata: dict[str, Any]) -> str:
    key = random.choice(list(metadata))
    try:
        value = json.loads(metadata[key])
    except (ValueError, TypeError):
        return change_value(random, metadata)
    if not isinstance(value, (dict, list)) or random.random() < 0.2:
        metadata[key] = random.choice(
            (*TEXTS, "[" * 100_000, '{"a":' * 9999, 3, None, [], "[[]]", "1e999")
        )
        return f"metadata {key!r}"
    done = change_value(random, value)
    metadata[key] = json.dumps(value)
    return f"{done} in the metadata {key!r}"


# npy and npz -----------------------------------------------------------------------------------

_DESCRIPTIONS = (
    "'<f4'", "'>f4'", "'<f8'", "'<f2'", "'|O'", "'<U5'", "'<U1000000000'", "'|S0'", "'<M8[ns]'",
    "'<c8'", "'|b1'", "'<u8'", "'|V10'", "'f16'", "'<f3'", "[('a', '<f4')]", "('<f4', (2,))",
    "'<f4,<f4'", "[('a', [('b', '|O')])]", "None", "5", "''", "'\\x00'", "{}", "('<f4', (10**9,))",
    "('<f4', (99999, 99999))",
)  # fmt: skip
_NPY_SHAPES = (
    "()", "(0,)", "(0, 8)", "(8, 0)", "(-1, 8)", "(40,)", "(1000000000000, 8)", "(4611686018427387904, 8)",
    "(9223372036854775808, 8)", "(99999999999999999999999999, 8)", "(3, 3, 3)", "(1.5, 8)", "('8', 8)",
    "(True, 8)", "None", "8", "[40, 8]", "(" * 60 + ")" * 60, "(1,) * 9", "(" + "1, " * 40 + ")",
)  # fmt: skip
_HEADERS = (
    "", "{", "}", "(", "'" , "{'descr': '<f4'", "{'descr': '<f4'}", "1+1", "__import__('os')", "{}",
    "(" * 300, "[" * 5000, "'''", "{'descr': '<f4', 'fortran_order': False, 'shape': (2", "\0", "\\",
    "-" * 3000 + "1", "{'descr': '<f4', 'fortran_order': 3, 'shape': (2,), }", "x" * 60_000, "1e999",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "\xe9", "\ufeff{}",
)  # fmt: skip


def damage_npy(random: Random, content: bytes) -> tuple[bytes, str]:
    """Change the header of an npy file, or its bytes; return what was done too."""
    if random.random() < 0.3:
        return damage(random, content)
    size = int.from_bytes(content[8:10], "little")
    header, data = content[10 : 10 + size].decode("latin1"), content[10 + size :]
    how = random.choice(("descr", "shape", "fortran_order", "text", "version", "length"))
    version = (1, 0)
    if how == "descr":
        header = _replace_entry(header, "descr", random.choice(_DESCRIPTIONS))
    elif how == "shape":
        header = _replace_entry(header, "shape", random.choice(_NPY_SHAPES))
    elif how == "fortran_order":
        header = _replace_entry(header, how, random.choice(("True", "None", "'a'", "1", "[]")))
    elif how == "text":
        header = random.choice(_HEADERS)
    elif how == "version":
        version = random.choice(((2, 0), (3, 0), (0, 0), (9, 9), (255, 255)))
    raw = (header.rstrip("\n") + "\n").encode("latin1", "replace")
    length = (
        len(raw)
        if how != "length"
        else random.choice((0, 1, 10, len(raw) - 1, len(raw) + 9, 65_535))
    )
    kind = "<H" if version < (2, 0) else "<I"
    start = b"\x93NUMPY" + bytes(version) + struct.pack(kind, min(length, 65_535))
    return start + raw + data, f"{how} of the npy header"


def _replace_entry(header: str, key: str, value: str) -> str:
    entries = {
        "descr": header[header.index("'descr': ") + 9 : header.index(", 'fortran_order'")],
        "fortran_order": header.partition("'fortran_order': ")[2].partition(",")[0],
        "shape": header[header.index("'shape': ") + 9 : header.rindex(")") + 1],
    } | {key: value}
    return "{" + "".join(f"'{name}': {entry}, " for name, entry in entries.items()) + "}"


def to_npy(array: np.ndarray) -> bytes:
    """Return an array as the bytes of an npy file; objects are pickled."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def to_zip(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return members as the bytes of a zip archive, always the same."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            facts = zipfile.ZipInfo(name)
            facts.compress_type = method
            archive.writestr(facts, content)
    return stream.getvalue()


# Offset and size of the fields of the three records of a zip archive.
_LOCAL = {"version": (4, 2), "flags": (6, 2), "method": (8, 2), "crc": (14, 4), "packed": (18, 4),
          "size": (22, 4), "name": (26, 2), "extra": (28, 2)}  # fmt: skip
_CENTRAL = {"version": (6, 2), "flags": (8, 2), "method": (10, 2), "crc": (16, 4), "packed": (20, 4),
            "size": (24, 4), "name": (28, 2), "extra": (30, 2), "disk": (34, 2), "offset": (42, 4)}  # fmt: skip
_END = {"disk": (4, 2), "count": (8, 2), "total": (10, 2), "size": (12, 4), "offset": (16, 4)}
_RECORDS = {b"PK\3\4": _LOCAL, b"PK\1\2": _CENTRAL, b"PK\5\6": _END}


def damage_npz(random: Random, content: bytes) -> tuple[bytes, str]:
    """Change records of the zip archive, its members, or its bytes; return what was done too."""
    how = random.random()
    if how < 0.2:
        return damage(random, content)
    if how < 0.5:
        return change_zip_record(random, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(members))
    if how < 0.85:
        members[name], done = damage_npy(random, members[name])
        done = f"{done} of {name}"
    else:
        done = _change_members(random, members, name)
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    return to_zip(members, random.choice(methods)), done


def change_zip_record(random: Random, content: bytes) -> tuple[bytes, str]:
    """Write odd numbers into one or two records of a zip archive."""
    changed, done = bytearray(content), []
    for _ in range(random.choice((1, 1, 2))):
        mark = random.choice(list(_RECORDS))
        places = [i for i in range(len(content)) if content[i : i + 4] == mark]
        name, (offset, size) = random.choice(list(_RECORDS[mark].items()))
        values = {"method": (1, 8, 9, 12, 14, 93, 99, 65_535), "flags": (1, 8, 64, 2048, 65_535)}
        value = random.choice(values.get(name, INTEGERS)) % 2 ** (8 * size)
        for place in places if random.random() < 0.3 else [random.choice(places)]:
            changed[place + offset : place + offset + size] = value.to_bytes(size, "little")
        done.append(f"{name} of a zip record")
    return bytes(changed), ", ".join(done)


def _change_members(random: Random, members: dict[str, bytes], name: str) -> str:
    how = random.choice(("rename", "remove", "copy", "folder", "text", "nested", "alias"))
    content = members[name]
    if how == "remove":
        del members[name]
    elif how == "copy":
        members[name.removesuffix(".npy")] = content
    elif how == "folder":
        members["folder/"] = b""
    elif how == "text":
        members[name] = random.choice((b"", b"text", b"\x93NUMPY", b"PK\3\4", b"\x80\4K\1."))
    elif how == "nested":
        members[name] = to_zip({name: content})
    else:
        odd = (
            "../x.npy",
            "/x.npy",
            "f.npy",
            "y.npy",
            "features",
            "a" * 3000,
            "\u00e9.npy",
            ".npy",
            "features.NPY",
        )
        members[random.choice(odd)] = members.pop(name) if how == "rename" else content
    return f"{how} of the member {name}"


# tar -------------------------------------------------------------------------------------------

_TAR_FIELDS = {
    "name": (0, 100), "mode": (100, 8), "uid": (108, 8), "size": (124, 12), "mtime": (136, 12),
    "type": (156, 1), "link": (157, 100), "magic": (257, 8), "major": (329, 8), "prefix": (345, 155),
}  # fmt: skip
_TAR_NUMBERS = (
    b"00000000000", b"77777777777", b"-0000000001", b"           ", b"9999", b"0x10", b"\x80" + bytes(11),
    b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff" * 12, b"", b"00000001000", b"1\x002\x00", b"1_0",
)  # fmt: skip
_TAR_NAMES = (
    b"../x.png", b"/x.png", b"a/../../x.png", b"", b"x", b"a/", b"a//b.png", b"\xff\xfe/a.png", b"a\x1b[1m/b.png",
    b"a\n/b.png", b"./a/b.png", b"a/b.png\0tail", b"a" * 100, b"a/.hidden.png", b"a/b.txt", b"\\a\\b.png",
)  # fmt: skip


def edit_tar_header(random: Random, content: bytes) -> tuple[bytes, str]:
    """Change a field of a header and correct its checksum: another, valid or absurd archive."""
    headers = [i for i in range(0, len(content), 512) if content[i + 257 : i + 262] == b"ustar"]
    place, changed = random.choice(headers), bytearray(content)
    name, (offset, size) = random.choice(list(_TAR_FIELDS.items()))
    if name == "type":
        value = random.choice(
            (
                b"0",
                b"\0",
                b"1",
                b"2",
                b"3",
                b"5",
                b"6",
                b"7",
                b"L",
                b"K",
                b"x",
                b"g",
                b"S",
                b"V",
                b"D",
            )
        )
    elif name in ("name", "link", "prefix"):
        value = random.choice(_TAR_NAMES)
    elif name == "magic":
        value = random.choice((b"ustar  \0", b"ustar\00000", b"\0" * 8, b"noise123"))
    else:
        value = random.choice(_TAR_NUMBERS)
    changed[place + offset : place + offset + size] = value[:size].ljust(size, b"\0")
    header = changed[place : place + 512]
    total = sum(header[:148]) + 32 * 8 + sum(header[156:])
    changed[place + 148 : place + 156] = b"%06o\0 " % total
    return bytes(changed), f"{name} of a tar header"


def tar_with_odd_members(random: Random, members: dict[str, bytes]) -> bytes:
    """Return an archive with one odd member or odd pax records among ordinary ones."""
    stream = io.BytesIO()
    pax = random.choice(
        (
            {"path": random.choice(TEXTS)},
            {"size": "10000000000000"},
            {"size": "-5"},
            {"size": "x"},
            {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
            {"GNU.sparse.map": "0,1,x"},
            {"GNU.sparse.size": "99999999999"},
            {"hdrcharset": "BINARY"},
            {"mtime": "nan"},
            {"": ""},
        )
    )
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        odd = random.randrange(len(members))
        for number, (name, content) in enumerate(members.items()):
            facts = tarfile.TarInfo(name)
            facts.size = len(content)
            if number == odd:
                facts.pax_headers = {
                    k: v.encode("utf-8", "replace").decode() for k, v in pax.items()
                }
            archive.addfile(facts, io.BytesIO(content))
    return stream.getvalue()
