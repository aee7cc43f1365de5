"""Parquet files with a column of embeddings, from files that anybody may have written.

An embedding is a list of numbers, or a list of fixed size, in float16, float32 or float64. Rows are
read in batches, whatever the size of the row groups. Arrow's arrays are viewed by NumPy without a
copy. What the file declares is compared with its size before any row is read.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from infoshot.core.arrow_views import view_as_numpy
from infoshot.core.errors import DataError
from infoshot.core.text import visible

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
SUFFIX = ".parquet"
BATCH_ROWS = 4096  # rows of a batch at most; a text of each may have 2**16 bytes
_BATCH_NUMBERS = 2**18
_BUFFER = 2**20  # bytes of a column that are read at once
_LARGE, _HIGHEST_RATIO = 2**28, 200  # as for .npz files
_LARGEST_DIM = 2**24
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
_MOST_LISTED = 20  # columns in a message


@dataclass(frozen=True, eq=False)
class EmbeddingFile:
    """An open Parquet file, and what its column of embeddings holds.

    Parameters
    ----------
    name
        What to call the file in messages.
    source
        The open file.
    file
        What pyarrow makes of it.
    column
        Name of the column of embeddings.
    n_rows, dim, dtype
        Its shape, and ``float16``, ``float32`` or ``float64``. Without rows ``dim`` is 0 unless the
        type of the column has the size.
    """

    name: str
    source: BinaryIO
    file: "pq.ParquetFile"
    column: str
    n_rows: int
    dim: int
    dtype: str

    @property
    def n_bytes(self) -> int:
        """Bytes of all embeddings in memory."""
        return self.n_rows * self.dim * np.dtype(self.dtype).itemsize

    def batches(self) -> Iterator[NDArray[Any]]:
        """Read the embeddings in order, ``(row, dim)`` at a time; the arrays cannot be written to.

        Raises
        ------
        DataError
            If a row is missing, has a null, or has another width; the message names it.
        """
        size = max(1, min(BATCH_ROWS, _BATCH_NUMBERS // max(1, self.dim)))
        first = 0
        for batch in read_batches(self.name, self.file, [self.column], size):
            numbers = view_rows(self.name, self.column, batch.column(0), self.dim, first)
            yield view_as_numpy(numbers).reshape(batch.num_rows, self.dim)
            first += batch.num_rows
        if first != self.n_rows:
            raise damaged(self.name, f"{first:,} rows instead of {self.n_rows:,}")


def view_rows(name: str, column: str, rows: "pa.Array", dim: int, first: int = 0) -> "pa.Array":
    """Return the numbers of rows one after another, without a copy; all must have ``dim``.

    Parameters
    ----------
    name, column
        Where the rows are from, for messages.
    rows
        Lists of numbers.
    dim
        The width of each.
    first
        The number of the first row.

    Raises
    ------
    DataError
        If a row is missing, has a null, or has another width; the message names it.
    """
    where = f"{name}: row %d of the column '{visible(column)}'"
    if rows.null_count:
        row = first + _first_null(rows)
        raise DataError(f"{where % row} is null; remove rows without an embedding.")
    lengths = _lengths(rows)
    others = (lengths != dim).nonzero()[0]
    if len(others):
        row = int(others[0])
        raise DataError(
            f"{where % (first + row)} has {lengths[row]} numbers, but the first row has {dim}; all "
            "rows must have the same width."
        )
    numbers = rows.flatten()
    if numbers.null_count:
        row = first + _first_null(numbers) // dim
        raise DataError(f"{where % row} has a null among its numbers; remove such rows.")
    return numbers


def first_width(name: str, column: str, rows: "pa.Array") -> int:
    """Return the width of the first row.

    Raises
    ------
    DataError
        If it is missing, or has no numbers or too many.
    """
    where = f"{name}: row 0 of the column '{visible(column)}'"
    if not rows[0].is_valid:
        raise DataError(f"{where} is null; remove rows without an embedding.")
    dim = len(rows[0])
    if not 0 < dim <= _LARGEST_DIM:
        raise DataError(
            f"{name}: embeddings must have 1 to {_LARGEST_DIM:,} numbers; the first row of the "
            f"column '{visible(column)}' has {dim:,}."
        )
    return dim


def open_embeddings(name: str, source: BinaryIO, column: str | None = None) -> EmbeddingFile:
    """Open a Parquet file, and check what it declares.

    Parameters
    ----------
    name
        What to call the file in messages.
    source
        The file, open for reading; it must stay open.
    column
        The column of embeddings; ``None``: the only column of lists of floating-point numbers.

    Raises
    ------
    DataError
        If it is not a Parquet file, has no such column, or declares more than it can hold.
    """
    file = open_parquet(name, source)
    schema = file.schema_arrow
    column = choose_column(name, schema, column)
    kind = schema.field(column).type
    dtype = _FLOATS[str(kind.value_type)]
    n_rows = file.metadata.num_rows
    _check_sizes(name, source, file, column, np.dtype(dtype).itemsize)
    dim = getattr(kind, "list_size", 0)
    if n_rows:
        batch = next(read_batches(name, file, [column], 1), None)
        if batch is None:
            raise damaged(name, "it has no rows, although it declares some")
        dim = first_width(name, column, batch.column(0))
    return EmbeddingFile(name, source, file, column, n_rows, dim, dtype)


def has_embeddings(name: str, source: BinaryIO) -> bool:
    """Whether a Parquet file has a column of lists of floating-point numbers.

    Raises
    ------
    DataError
        If it is not a Parquet file.
    """
    return any(is_embedding(field.type) for field in open_parquet(name, source).schema_arrow)


def open_parquet(
    name: str, source: BinaryIO, texts: Sequence[str] | None = None
) -> "pq.ParquetFile":
    """Open a Parquet file; the columns ``texts`` are read as dictionaries.

    Raises
    ------
    DataError
        If it is not a Parquet file.
    """
    import pyarrow.parquet as pq

    with parquet_errors(name):
        source.seek(0)
        return pq.ParquetFile(source, pre_buffer=False, buffer_size=_BUFFER, read_dictionary=texts)


def read_batches(
    name: str,
    file: "pq.ParquetFile",
    columns: Sequence[str],
    size: int,
    groups: Sequence[int] | None = None,
) -> Iterator["pa.RecordBatch"]:
    """Read columns of a file, or of some of its row groups, in batches of at most ``size`` rows.

    Raises
    ------
    DataError
        If the file is damaged.
    """
    with parquet_errors(name):
        batches = file.iter_batches(size, groups, columns=[*columns], use_threads=False)
    while True:
        with parquet_errors(name):
            batch = next(batches, None)
            if batch is not None and batch.schema.names != [*columns]:
                batch = batch.select([*columns])
        if batch is None:
            return
        yield batch


def check_declared(name: str, source: BinaryIO, n_bytes: int) -> None:
    """Raise ``DataError`` if what a file declares would be much larger in memory than the file."""
    source.seek(0, 2)
    size = source.tell()
    if n_bytes > _LARGE and n_bytes > _HIGHEST_RATIO * size:
        raise DataError(
            f"{name}: declares {n_bytes / 1e9:,.1f} GB of values in a file of {size:,} bytes, more "
            f"than {_HIGHEST_RATIO} times its size."
        )


@contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Turn whatever pyarrow raises for a damaged file into one sentence."""
    import pyarrow as pa

    try:
        yield
    except (
        OSError, ValueError, TypeError, LookupError, RuntimeError, ArithmeticError, MemoryError,
        pa.ArrowException,
    ) as error:  # fmt: skip
        raise damaged(name, " ".join(str(error).split())[:200]) from error


def damaged(name: str, reason: str) -> DataError:
    """Return the error for a file that is not what it seems to be."""
    return DataError(f"{name}: truncated, damaged or not a Parquet file ({reason.rstrip('. ')}).")


def is_embedding(kind: "pa.DataType") -> bool:
    """Whether a type is a list of floating-point numbers."""
    return _is_list(kind, lambda values: str(values) in _FLOATS)


def list_columns(names: Sequence[str]) -> str:
    """List the columns of a file, for a message."""
    shown = ", ".join(visible(name)[:60] for name in names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def choose_column(name: str, schema: "pa.Schema", column: str | None) -> str:
    """Return the column of embeddings, by default the only one that can be.

    Raises
    ------
    DataError
        If there is no such column, or several.
    """
    found = [field.name for field in schema if is_embedding(field.type)]
    if column is None:
        if len(found) != 1:
            what = f"the columns {list_columns(found)} all hold" if found else "no column holds"
            these = "" if found else f" (columns: {list_columns(schema.names)})"
            advice = (None if found else _advise_on_integers(schema)) or (
                "pass column=NAME of the embeddings"
            )
            raise DataError(f"{name}: {what} lists of floating-point numbers{these}; {advice}.")
        column = found[0]
    if schema.names.count(column) != 1:
        many = "twice or more" if column in schema.names else "not"
        raise DataError(
            f"{name}: the column '{visible(column)}' is {many} there "
            f"(columns: {list_columns(schema.names)})."
        )
    if column not in found:
        kind = schema.field(column).type
        advice = "; convert its numbers to float32" if _is_list(kind, _is_integer) else ""
        raise DataError(
            f"{name}: the column '{visible(column)}' must hold lists of float16, float32 or "
            f"float64; got {kind!s:.80} (columns: {list_columns(schema.names)}){advice}."
        )
    return column


def _advise_on_integers(schema: "pa.Schema") -> str | None:
    """Say how lists of integers become embeddings, if there are any."""
    for field in schema:
        if _is_list(field.type, _is_integer):
            return f"if '{visible(field.name)}' has the embeddings, convert its numbers to float32"
    return None


def _is_list(kind: "pa.DataType", of: Callable[["pa.DataType"], bool]) -> bool:
    """Whether a type is a list of values of some type."""
    import pyarrow as pa

    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks) and of(kind.value_type)


def _is_integer(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))


def _check_sizes(
    name: str, source: BinaryIO, file: "pq.ParquetFile", column: str, item_size: int
) -> None:
    """Compare the numbers of values that a file declares with its size, before any is read."""
    facts, schema = file.metadata, file.schema_arrow
    leaf = 0
    for field in schema:
        if field.name == column:
            break
        leaf += _n_leaves(field.type)
    if leaf >= facts.num_columns:
        raise damaged(name, "its columns are not those of its schema")
    n_values = 0
    for number in range(facts.num_row_groups):
        group = facts.row_group(number)
        if min(facts.num_rows, group.num_rows, group.column(leaf).num_values) < 0:
            raise damaged(name, "a number of rows is negative")
        n_values += max(group.num_rows, group.column(leaf).num_values)
    check_declared(name, source, max(n_values, facts.num_rows) * item_size)


def _n_leaves(kind: "pa.DataType") -> int:
    """Count the columns that a file stores for a type."""
    parts = [kind.field(number).type for number in range(kind.num_fields)]
    return sum(map(_n_leaves, parts)) if parts else 1


def _lengths(rows: "pa.Array") -> NDArray[Any]:
    """Return the number of values of each row; no row is null."""
    import pyarrow.compute as pc

    return view_as_numpy(pc.list_value_length(rows))


def _first_null(values: "pa.Array") -> int:
    return int(values.is_null().index(True).as_py())
