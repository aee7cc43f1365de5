"""CSV files: what we write is valid UTF-8 with exact fields; what we read is checked first.

Spreadsheets save CSV in several encodings and with several separators. UTF-8 (with or without a
byte order mark) and UTF-16 with a byte order mark are read; the separator is a comma, a semicolon
or a tab, by the header line. Everything else is refused with the number of the line.
"""

import codecs
import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular
from infoshot.core.text import encodable, visible

_SEPARATORS = (",", ";", "\t")
_LARGEST = 2**30  # bytes
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ADVICE = "save it as 'CSV UTF-8' and try again"


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Format rows as CSV; fields with commas, quotes or any line break are quoted.

    Examples
    --------
    >>> csv_text(["path", "label"], [["a\rb.png", "cat"]])
    'path,label\n"a\rb.png",cat\n'
    """
    text = io.StringIO()
    # Python quotes a line break only if it occurs in the line terminator, so both must be there.
    writer = csv.writer(text, lineterminator="\r\n")
    lines = []
    for row in (header, *rows):
        writer.writerow(row)
        lines.append(text.getvalue().removesuffix("\r\n"))
        text.seek(0)
        text.truncate()
    return encodable("\n".join(lines)) + "\n"


def read_csv(path: Path, *needed: str) -> list[dict[str, str]]:
    """Read rows by column; columns that a line lacks are empty.

    Raises
    ------
    DataError
        If the file cannot be read, lacks a column, is neither UTF-8 nor UTF-16, or a line does not
        fit the header.
    """
    text = read_text(path)
    _, separator = _split_header(text, needed)
    lines = read_lines(path, text, separator)
    header = [name.strip() for name in lines[0][1]] if lines else []
    for name in needed:
        if name not in header:
            raise DataError(f"{path}: must have a header line with the column '{name}'.")
        if header.count(name) > 1:
            raise DataError(f"{path}: has several columns '{name}'.")
    rows = []
    for number, fields in lines[1:]:
        if any(fields[len(header) :]):
            raise DataError(
                f"{path}: line {number} has {len(fields)} fields, but the header has "
                f"{len(header)}; put names that contain '{visible(separator)}' in double quotes."
            )
        fields = fields[: len(header)] + [""] * (len(header) - len(fields))
        rows.append({name: field for name, field in zip(header, fields, strict=True) if name})
    return rows


def parse_header(start: bytes, *needed: str) -> tuple[tuple[str, ...], str]:
    """Parse the names of the columns, and their separator, from the first bytes of any file.

    There are no names if the file is not CSV with the needed columns.
    """
    return _split_header(start.decode(_find_codec(start), "ignore"), needed)


def read_lines(path: Path, text: str, separator: str = ",") -> list[tuple[int, list[str]]]:
    """Split CSV text into fields: the number of each line in the file, with its fields.

    Empty lines are skipped.

    Raises
    ------
    DataError
        If a quoted field has no end, or a field is too long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        return [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not CSV ({error}).") from error


def read_text(path: Path) -> str:
    """Read a text file in UTF-8, or in UTF-16 with a byte order mark.

    Raises
    ------
    DataError
        If it cannot be read, is too large, or is in another encoding.
    """
    content = _read_content(path)
    codec = _find_codec(content)
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        name = codec.removesuffix("-sig").upper()
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise DataError(
            f"{path}: line {line} is not {name} text (byte 0x{byte:02x}); {_ADVICE}."
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{path}: line {line} has a zero byte, which CSV cannot have; {_ADVICE}.")
    return text


def read_names(path: Path) -> list[str]:
    """Read a list of file names, one per line; the names may be any bytes.

    Raises
    ------
    DataError
        If it cannot be read, is too large, or is no text.
    """
    content = _read_content(path)
    if content.startswith(_UTF16):
        text = read_text(path)
    else:
        text = os.fsdecode(content.removeprefix(codecs.BOM_UTF8))
    if "\0" in text:
        raise DataError(f"{path}: neither a folder nor a list of files (CSV or text).")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read_content(path: Path) -> bytes:
    """Read the bytes of a list; raise ``DataError`` unless it is a regular file of fair size."""
    try:
        return read_regular(path, _LARGEST)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def _find_codec(content: bytes) -> str:
    return "utf-16" if content.startswith(_UTF16) else "utf-8-sig"


def _split_header(text: str, needed: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Split the header line by the first separator with which it has the needed columns."""
    line = io.StringIO(text, newline="").readline()
    for separator in _SEPARATORS:
        try:
            names = tuple(name.strip() for name in next(csv.reader([line], delimiter=separator)))
        except (csv.Error, StopIteration):
            continue  # reading the whole file reports it
        if set(names) >= set(needed):
            return names, separator
    return (), ","
