"""CSV files that keep every file name, whatever characters it holds."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular


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
    return "\n".join(lines) + "\n"


def read_csv(path: Path, *needed: str) -> list[dict[str, str]]:
    """Read rows by column; bytes that are not UTF-8 are kept as surrogate escapes.

    Raises
    ------
    DataError
        If the file cannot be read or lacks a column.
    """
    try:
        text = read_regular(path).decode("utf-8-sig", "surrogateescape")
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        rows = [{name: value for name, value in row.items() if name} for row in reader]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except csv.Error as error:
        raise DataError(f"{path}: not a CSV file ({error}).") from error
    for name in needed:
        if name not in (reader.fieldnames or []):
            raise DataError(f"{path}: must have a header line with the column '{name}'.")
    return rows
