"""Parquet tables, from files that anybody may have changed: sizes and types are checked first."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from infoshot.core.errors import DataError
from infoshot.core.json_file import parse_json
from infoshot.core.regular_file import open_regular

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ColumnKind = Literal["text", "bytes", "number", "numbers"]
_LONGEST = 2**16  # characters of a text


def format_table(columns: Mapping[str, Sequence[Any]], metadata: Mapping[str, str]) -> bytes:
    """Format columns as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)).replace_schema_metadata(dict(metadata)), sink)
    return sink.getvalue()


def parse_table(
    content: bytes, expected: Mapping[str, ColumnKind], *, n_rows: int, width: int
) -> dict[str, Any]:
    """Parse columns that :func:`format_table` wrote; no value is missing.

    Parameters
    ----------
    content
        The file.
    expected
        The columns to read, with the kind of their values. One of them must have distinct values,
        so that a table has more bytes than rows.
    n_rows, width
        The number of rows, and of values in a row of ``numbers``.

    Returns
    -------
    Lists of texts and bytes, arrays of numbers with one or two axes.

    Raises
    ------
    ValueError
        If it is not such a table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [name for name, kind in expected.items() if kind in ("text", "bytes")]
    try:
        source = pa.BufferReader(content)
        file = pq.ParquetFile(source)
        _check_columns(file.schema_arrow, expected)
        _check_sizes(file.metadata, len(content), n_rows, width)
        table = pq.ParquetFile(source, read_dictionary=texts).read([*expected])
        return {name: _READERS[kind](table[name], width) for name, kind in expected.items()}
    except (OSError, ValueError, TypeError, LookupError, MemoryError, pa.ArrowException) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from error


def read_facts(path: Path, kind: str) -> tuple[dict[str, Any], int]:
    """Read the facts that a file holds as JSON, and its number of rows.

    Parameters
    ----------
    path
        The file.
    kind
        Name of the entry in the metadata.

    Raises
    ------
    DataError
        If it is damaged, or has no such entry.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as source:
            file = pq.ParquetFile(source)
            facts = parse_json((file.schema_arrow.metadata or {})[kind.encode()])
            if not isinstance(facts, dict):
                raise ValueError("its facts are not an object")
            return facts, file.metadata.num_rows
    except (OSError, ValueError, TypeError, LookupError, MemoryError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200].rstrip(". ")
        raise DataError(f"{path}: damaged, or not a {kind} file ({reason}).") from error


def _check_columns(schema: "pa.Schema", expected: Mapping[str, ColumnKind]) -> None:
    """Compare columns and types with what they must be."""
    import pyarrow as pa

    types = {
        "text": pa.string(),
        "bytes": pa.binary(),
        "number": pa.float64(),
        "numbers": pa.list_(pa.float64()),
    }
    for name, kind in expected.items():
        if schema.names.count(name) != 1:
            raise ValueError(f"it must have one column '{name}'")
        found = schema.field(name).type
        if found != types[kind]:
            raise ValueError(f"the column '{name}' must be {types[kind]}; got {found}")


def _check_sizes(facts: "pq.FileMetaData", n_bytes: int, n_rows: int, width: int) -> None:
    """Compare the numbers of rows and values with what they must be, before any is read."""
    if facts.num_rows != n_rows:
        raise ValueError(f"it has {facts.num_rows:,} rows instead of {n_rows:,}")
    if n_rows > n_bytes:  # one column has distinct values
        raise ValueError(f"{n_rows:,} rows cannot be in {n_bytes:,} bytes")
    for group in range(facts.num_row_groups):
        for number in range(facts.num_columns):
            column = facts.row_group(group).column(number)
            if column.num_values > n_rows * max(width, 1):
                raise ValueError(f"the column '{column.path_in_schema}' has too many values")


def _read_texts(column: "pa.ChunkedArray", _: int) -> list[Any]:
    """Read a column of text as the dictionary that it is, so that repeats cost nothing."""
    found: list[Any] = []
    for chunk in column.chunks:
        if chunk.null_count:
            raise ValueError("a text is missing")
        values = chunk.dictionary.to_pylist()
        if any(value is None or len(value) > _LONGEST for value in values):
            raise ValueError(f"a text is missing, or longer than {_LONGEST:,} characters")
        if any(("\0" if isinstance(value, str) else b"\0") in value for value in values):
            raise ValueError("a text contains a zero byte")
        found += [values[number] for number in chunk.indices.to_pylist()]
    return found


def _read_numbers(column: "pa.ChunkedArray", _: int) -> NDArray[np.float64]:
    if column.null_count:
        raise ValueError("a number is missing")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _read_rows(column: "pa.ChunkedArray", width: int) -> NDArray[np.float64]:
    """Read rows of numbers into one array, without a Python object for each number."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).unique().to_pylist()
    if lengths not in ([], [width]):
        raise ValueError(f"a row has not {width} numbers")
    return _read_numbers(pc.list_flatten(column), 1).reshape(-1, width)


_READERS = {
    "text": _read_texts,
    "bytes": _read_texts,
    "number": _read_numbers,
    "numbers": _read_rows,
}
