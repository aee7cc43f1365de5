"""The members of a tar archive, found without unpacking it.

Python's ``tarfile`` takes a damaged header for the end of the archive, and the images behind it
are lost without a word. So every header is read here: its checksum must be right, its data must be
in the file, zeros must follow the last member, and nothing may follow them. The format has no
checksum of the data, which decoding checks, and no count of the members: an archive from which a
whole member was cut out is a valid archive.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from infoshot.core.errors import DataError
from infoshot.core.regular_file import open_regular
from infoshot.images.decoding import SliceLocation

_BLOCK = tarfile.BLOCKSIZE
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_WITHOUT_DATA = (
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
)
_LARGEST_EXTENSION = 2**20  # bytes of a long name or of pax records
_MOST_PADDING = 2**22  # bytes of zeros at the end; GNU tar writes up to 10 KB, tapes a few MB
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=]+)=")


@dataclass(frozen=True)
class TarFile:
    """A member of an archive that is not a folder; ``location`` is ``None`` if it has no data."""

    name: str
    path: PurePosixPath
    location: SliceLocation | None


@dataclass(frozen=True)
class _Member:
    """A member, with its long name resolved; ``start`` is where its first header is."""

    header: tarfile.TarInfo
    name: str
    link: str
    start: int
    offset: int
    size: int


class _DamageError(Exception):
    """What is wrong with an archive, and where."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"at byte {position:,}, {reason}")


def index_tar(archive: Path) -> Iterator[TarFile]:
    """List the files of an uncompressed archive in order; hard links to its files are files too.

    Raises
    ------
    DataError
        If the archive is damaged, truncated or compressed, or a name points outside of it.
    """
    files: dict[str, _Member] = {}
    try:
        with open_regular(archive) as file:
            for member in _members(file):
                path = _checked_path(archive, member.name)
                data = _data(member, files)
                if data is not None:
                    location = SliceLocation(archive, member.name, data.offset, data.size)
                    yield TarFile(member.name, path, location)
                elif not member.header.isdir() and member.link != member.name:
                    yield TarFile(member.name, path, None)
    except _DamageError as error:
        raise DataError(f"{archive}: not a complete, uncompressed tar archive: {error}.") from error
    except OSError as error:
        raise DataError(f"{archive}: cannot be read ({error.strerror}).") from error


def _data(member: _Member, files: dict[str, _Member]) -> _Member | None:
    """Return the member that has the data of a file; ``None`` for folders, devices and others.

    ``files`` are the members before it by name; this one is added.
    """
    data: _Member | None = None
    if member.header.isreg():
        data = member
    elif member.header.islnk() and member.link != member.name:
        data = files.get(member.link)
        if data is None:
            raise _DamageError(
                f"{member.name!r} is a link to {member.link!r}, which is no file before it",
                member.start,
            )
    if data is not None:
        if member.name in files:
            raise _DamageError(
                f"{member.name!r} is there a second time, after byte "
                f"{files[member.name].start:,}; only one is expected",
                member.start,
            )
        files[member.name] = data
    return data


def _checked_path(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(
            f"{archive}: the member {name!r} points outside the archive, which is not allowed."
        )
    return path


def _members(file: BinaryIO) -> Iterator[_Member]:
    """Read all headers of an archive in order, and check that it is complete."""
    total = file.seek(0, os.SEEK_END)
    start = position = 0
    every: dict[str, str] = {}  # of all following members
    own: dict[str, str] = {}  # of the next member
    while (header := _read_header(file, position, total)) is not None:
        if header.type in _LONG or header.type in _PAX:
            texts = every if header.type == tarfile.XGLTYPE else own
            texts |= _read_extension(file, header, position, total)
            position = _after(header.size, position, total)
            continue
        fields = every | own
        size = _size(header, fields, position)
        end = _after(size, position, total)
        name, link = fields.get("path", header.name), fields.get("linkpath", header.linkname)
        yield _Member(header, name, link, start, position + _BLOCK, size)
        start = position = end
        own = {}
    if own:
        raise _DamageError("a long name belongs to no member", start)
    _check_end(file, position, total)


def _read_header(file: BinaryIO, position: int, total: int) -> tarfile.TarInfo | None:
    """Read and check one header; ``None`` at the end of the archive."""
    file.seek(position)
    block = file.read(_BLOCK)
    if len(block) < _BLOCK:
        raise _DamageError(
            f"it ends without the zeros that end an archive ({total:,} bytes); it is truncated",
            position,
        )
    if block.count(0) == _BLOCK:
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise _DamageError(f"the header of a member is damaged ({error})", position) from error
    if header.type == tarfile.GNUTYPE_SPARSE:
        raise _DamageError("there is a sparse member, which is not supported", position)
    return header


def _after(size: int, position: int, total: int) -> int:
    """Return where the next header is, after ``size`` bytes of data."""
    data = position + _BLOCK
    if size > total - data:
        raise _DamageError(
            f"a member has {size:,} bytes, but {total - data:,} follow in the file", position
        )
    return data + -(-size // _BLOCK) * _BLOCK


def _size(header: tarfile.TarInfo, fields: dict[str, str], position: int) -> int:
    """Return the bytes of data of a member."""
    if any(key.startswith("GNU.sparse.") for key in fields):
        raise _DamageError("there is a sparse member, which is not supported", position)
    if header.type in _WITHOUT_DATA:
        return 0
    text = fields.get("size", str(header.size))
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise _DamageError("the size of a member is not a number", position)
    return int(text)


def _read_extension(
    file: BinaryIO, header: tarfile.TarInfo, position: int, total: int
) -> dict[str, str]:
    """Read what an extension header says about the members behind it."""
    if not 0 < header.size <= _LARGEST_EXTENSION:
        raise _DamageError(f"a long name or its records have {header.size:,} bytes", position)
    _after(header.size, position, total)
    body = file.read(header.size)
    if header.type in _PAX:
        return _read_pax(body, position)
    text, end, rest = body.partition(b"\0")
    if not text or rest.strip(b"\0") or not end:
        raise _DamageError("a long name is damaged", position)
    key = "path" if header.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
    return {key: text.decode("utf-8", "surrogateescape")}


def _read_pax(body: bytes, position: int) -> dict[str, str]:
    """Read records of 'length key=value'; they must fill the body exactly."""
    fields = {}
    start = 0
    while start < len(body):
        record = _PAX_RECORD.match(body, start)
        end = start + int(record[1]) if record else 0
        if record is None or not record.end() < end <= len(body) or body[end - 1] != ord("\n"):
            raise _DamageError("the records of a long name are damaged", position)
        key = record[2].decode("utf-8", "surrogateescape")
        if key in ("path", "linkpath", "size") or key.startswith("GNU.sparse."):
            fields[key] = body[record.end() : end - 1].decode("utf-8", "surrogateescape")
        start = end
    return fields


def _check_end(file: BinaryIO, position: int, total: int) -> None:
    """Check that only zeros follow the last member, and not too many."""
    if total - position > _MOST_PADDING:
        raise _DamageError(
            f"the members end, but {total - position:,} bytes follow; the file is damaged, or "
            "archives were joined",
            position,
        )
    file.seek(position)
    rest = file.read(total - position)
    if rest.count(0) < len(rest):
        first = position + len(rest) - len(rest.lstrip(b"\0"))
        raise _DamageError(
            "there is data after the end of the archive; the file is damaged, or archives were "
            "joined",
            first,
        )
