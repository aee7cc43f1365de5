"""Columns of a Parquet file beside its embeddings, such as ids, which go with the labels.

Columns of numbers, texts, truth values and times can be kept; lists, structs and bytes, such as
images, cannot. A text that a small file repeats many times is large when it is read, so the texts
that a row group has to repeat are checked first, and batches have fewer rows if they are long.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, BinaryIO

from infoshot.core.embedding_column import (
    BATCH_ROWS,
    check_declared,
    list_columns,
    open_parquet,
    parquet_errors,
    read_batches,
)
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.text import visible

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST = 2**16  # bytes of a text
_GROUP_ROWS = 2**16
_VALUE_SIZE = 8  # bytes of a number, and at most of the place of a text
_BATCH_BYTES = 2**26  # of a column of texts


def choose_kept(
    name: str, schema: "pa.Schema", keep: Sequence[str] | None, without: Sequence[str]
) -> list[str]:
    """Choose the columns to keep.

    Parameters
    ----------
    name
        What to call the file in messages.
    schema
        Columns and types of the file.
    keep
        Names of columns; ``None``: all that can be kept.
    without
        Columns that are never kept.

    Raises
    ------
    DataError
        If a column is not in the file or cannot be kept.
    """
    if isinstance(keep, str):
        raise InvalidArgumentError(f"keep must be a list of names of columns; got {keep!r:.80}.")
    names = schema.names if keep is None else dict.fromkeys(keep)
    chosen = []
    for column in names:
        if schema.names.count(column) == 1 and _can_be_kept(schema.field(column).type):
            if column not in without:
                chosen.append(column)
        elif keep is not None:
            found = column in schema.names
            why = "cannot be kept with the labels" if found else "is not there"
            raise DataError(
                f"{name}: the column '{visible(column)}' {why} "
                f"(columns: {list_columns(schema.names)})."
            )
    return chosen


def read_kept(
    name: str, source: BinaryIO, schema: "pa.Schema", columns: Sequence[str]
) -> Iterator["pa.RecordBatch"]:
    """Read columns in batches, texts as ``string``. A file without rows is an empty batch.

    Raises
    ------
    DataError
        If the file is damaged, or a text is too long.
    """
    import pyarrow as pa

    texts = [column for column in columns if _is_text(schema.field(column).type)]
    file = open_parquet(name, source)
    check_declared(name, source, file.metadata.num_rows * len(columns) * _VALUE_SIZE)
    longest = _longest_repeated(name, source, texts) if texts else 1
    size = min(BATCH_ROWS, _BATCH_BYTES // longest)
    for batch in read_batches(name, file, columns, size):
        with parquet_errors(name):
            batch.validate(full=True)  # damaged texts and places in dictionaries
        for column, values in zip(columns, batch.columns, strict=True):
            _check_texts(name, column, values)
        yield _with_strings(batch)
    if not file.metadata.num_rows:
        empty = [pa.nulls(0, schema.field(column).type) for column in columns]
        yield _with_strings(pa.RecordBatch.from_arrays(empty, names=[*columns]))


def encode_texts(table: "pa.Table") -> "pa.Table":
    """Return a table with texts as dictionaries, so that repeated ones take their memory once."""
    import pyarrow as pa

    for number, field in enumerate(table.schema):
        if _is_text(field.type):
            texts = table.column(number).cast(pa.string()).dictionary_encode()
            table = table.set_column(number, field.name, texts)
    return table


def rename_kept(kept: Sequence[str], own: Iterable[str]) -> list[str]:
    """Put ``source_`` before the names of kept columns that are taken.

    Examples
    --------
    >>> rename_kept(["id", "label", "source_label"], ["label", "confidence"])
    ['id', 'source_source_label', 'source_label']
    """
    taken, names = {*own, *kept}, []
    for name in kept:
        new = name
        if name in own:
            while new in taken:
                new = f"source_{new}"
        taken.add(new)
        names.append(new)
    return names


def add_columns(
    kept: Iterable["pa.RecordBatch"], own: Mapping[str, "pa.Array"]
) -> Iterator["pa.RecordBatch"]:
    """Put columns behind those that were kept, in batches, with texts as texts again.

    Parameters
    ----------
    kept
        Batches of the columns that were kept.
    own
        Other columns by name, with as many values.
    """
    import pyarrow as pa

    first = 0
    for batch in kept:
        names = [*rename_kept(batch.schema.names, own), *own]
        added = [values.slice(first, batch.num_rows) for values in own.values()]
        yield pa.RecordBatch.from_arrays([*map(_plain, [*batch.columns, *added])], names=names)
        first += batch.num_rows


def write_batches(
    file: BinaryIO, batches: Iterable["pa.RecordBatch"], metadata: Mapping[str, str] | None = None
) -> None:
    """Write one or more batches of the same columns to a file as Parquet."""
    import pyarrow.parquet as pq

    coming = iter(batches)
    first = next(coming)
    schema = first.schema.with_metadata(dict(metadata or {}))
    with pq.ParquetWriter(file, schema) as writer:
        for batch in chain([first], coming):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata), _GROUP_ROWS)


def _with_strings(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return texts of any kind as ``string``; those that are need no copy."""
    import pyarrow as pa

    if not batch.num_columns:  # its rows would be lost
        return batch
    columns = [v.cast(pa.string()) if _is_text(v.type) else v for v in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _plain(values: "pa.Array") -> "pa.Array":
    """Return texts instead of a dictionary of texts."""
    import pyarrow as pa

    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _can_be_kept(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    checks = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal,
        pa.types.is_decimal, pa.types.is_null, _is_text,
    )  # fmt: skip
    return any(check(kind) for check in checks)


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return any(
        check(kind)
        for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _longest_repeated(name: str, source: BinaryIO, texts: Sequence[str]) -> int:
    """Check the texts that row groups store once for many rows; return the most bytes of one.

    pyarrow reads these dictionaries with the first row. It would add every other text of a row
    group to them, and copy them with each batch, so the rows themselves are read as plain texts.
    """
    file, longest = open_parquet(name, source, texts), 1
    for group in range(file.num_row_groups):
        for batch in islice(read_batches(name, file, texts, 1, [group]), 1):
            for column, values in zip(texts, batch.columns, strict=True):
                longest = max(longest, _check_texts(name, column, values))
    return longest


def _check_texts(name: str, column: str, values: "pa.Array") -> int:
    """Raise ``DataError`` if a text is too long; return the bytes of the longest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary
    if not _is_text(values.type):
        return 0
    longest = int(pc.max(pc.binary_length(values)).as_py() or 0)
    if longest > _LONGEST:
        raise DataError(
            f"{name}: the column '{visible(column)}' has a text of more than {_LONGEST:,} bytes."
        )
    return longest
