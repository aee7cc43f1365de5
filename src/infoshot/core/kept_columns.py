"""Columns of a Parquet file beside its embeddings, such as ids, which go with the labels.

Columns of numbers, texts, truth values and times can be kept; lists, structs and bytes, such as
images, cannot. Texts are read as dictionaries, so that a small file whose text is repeated many
times stays small in memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
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
_VALUE_SIZE = 8  # bytes of a number, and at most of the place of a text in its dictionary


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
    """Read columns in batches; texts are dictionaries. A file without rows is an empty batch.

    Raises
    ------
    DataError
        If the file is damaged, or a text is too long.
    """
    import pyarrow as pa

    texts = [column for column in columns if _is_text(schema.field(column).type)]
    file = open_parquet(name, source, texts)
    check_declared(name, source, file.metadata.num_rows * len(columns) * _VALUE_SIZE)
    for batch in read_batches(name, file, columns, BATCH_ROWS):
        with parquet_errors(name):
            batch.validate(full=True)  # damaged texts and places in dictionaries
        for column, values in zip(columns, batch.columns, strict=True):
            _check_texts(f"{name}: the column '{visible(column)}'", values)
        yield batch
    if not file.metadata.num_rows:
        fields = [schema.field(column) for column in columns]
        yield pa.RecordBatch.from_pylist([], schema=pa.schema(fields))


def encode_texts(table: "pa.Table") -> "pa.Table":
    """Return a table in memory with texts as dictionaries, as :func:`read_kept` has them."""
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
        yield pa.RecordBatch.from_arrays([*map(_plain, batch.columns), *added], names=names)
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


def _check_texts(where: str, values: "pa.Array") -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type) and _is_text(values.type.value_type):
        longest = pc.max(pc.binary_length(values.dictionary)).as_py() or 0
        if longest > _LONGEST:
            raise DataError(f"{where} has a text of more than {_LONGEST:,} bytes.")
