"""Parquet files as a feature table: a column of embeddings, one of labels, and the others.

Labels are texts or whole numbers; null, an empty text and -1 mark unlabelled rows. The names of
numbered classes are those that the ``datasets`` package stores in the file, if any.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infoshot.core.checks import check_finite
from infoshot.core.embedding_column import EmbeddingFile, list_columns, open_embeddings
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.kept_columns import choose_kept, read_kept
from infoshot.core.memory import total_memory
from infoshot.core.parsing import parser_errors
from infoshot.core.places import Place, open_place
from infoshot.core.text import visible
from infoshot.core.types import FeatureTable

if TYPE_CHECKING:
    import pyarrow as pa

_LABEL_COLUMNS = ("label", "labels")


def read_parquet_table(
    places: Sequence[Place], *, column: str | None = None, label_column: str | None = None
) -> FeatureTable:
    """Read Parquet files, in their order, as one table.

    Parameters
    ----------
    places
        The files; they have the same columns.
    column
        The embeddings; ``None``: the only column of lists of floating-point numbers.
    label_column
        The labels; ``None``: ``label``, or ``labels``.

    Returns
    -------
    The table; ``columns`` has the other columns. Names of classes are not checked.

    Raises
    ------
    DataError
        If a file is damaged, a column is missing, a row has no embedding or one of another width,
        or a value is not finite.
    """
    shapes, dtype = [], None
    for place in places:
        with open_place(place) as source:
            embeddings = open_embeddings(str(place), source, column)
            shapes.append((embeddings.n_rows, embeddings.dim))
            own = getattr(torch, embeddings.dtype)
            dtype = own if dtype is None else torch.promote_types(dtype, own)
    n_rows, dim = sum(n for n, _ in shapes), _check_widths(places, shapes)
    if not n_rows:
        raise DataError(f"{places[0]}: the file has no rows.")
    if n_rows * dim * torch.empty((), dtype=dtype).element_size() > total_memory():
        raise DataError(f"{places[0]}: the embeddings are larger than the memory.")
    features, tables, first = torch.empty(n_rows, dim, dtype=dtype), [], 0
    for place, (n_own, _) in zip(places, shapes, strict=True):
        with open_place(place) as source:
            embeddings = open_embeddings(str(place), source, column)
            _fill(features[first : first + n_own], embeddings)
            tables.append(_read_others(embeddings, label_column))
        first += n_own
    others = _join(places, tables)
    schema = others.schema
    labels, names = _read_labels(str(places[0]), others.column(0), schema.names[0])
    if not names:
        names = _stored_names(tables[0].schema.metadata, schema.names[0])
    kept = others.select(schema.names[1:]) if len(schema.names) > 1 else None
    return FeatureTable(features, labels, class_names=names, columns=kept)


def _check_widths(places: Sequence[Place], shapes: Sequence[tuple[int, int]]) -> int:
    """Return the width of the embeddings of all files that have rows."""
    filled = [(place, dim) for place, (n, dim) in zip(places, shapes, strict=True) if n]
    for place, dim in filled:
        if dim != filled[0][1]:
            raise DataError(
                f"{place}: its embeddings have {dim} numbers, but those of {filled[0][0].name} "
                f"have {filled[0][1]}."
            )
    return filled[0][1] if filled else 0


def _fill(rows: Tensor, embeddings: EmbeddingFile) -> None:
    """Read all embeddings of a file into rows of the table."""
    first = 0
    for batch in embeddings.batches():
        if first + len(batch) > len(rows) or batch.shape[1] != rows.shape[1]:
            raise DataError(f"{embeddings.name}: the file has changed while it was read.")
        rows.numpy()[first : first + len(batch)] = batch
        first += len(batch)
    try:
        check_finite(f"the column '{visible(embeddings.column)}'", rows)
    except InvalidArgumentError as error:
        raise DataError(f"{embeddings.name}: {error}") from error


def _read_others(embeddings: EmbeddingFile, label_column: str | None) -> "pa.Table":
    """Read the labels, which become the first column, and what can be kept."""
    import pyarrow as pa

    name, schema = embeddings.name, embeddings.file.schema_arrow
    label = label_column or next((it for it in _LABEL_COLUMNS if it in schema.names), None)
    if label is None or label not in schema.names:
        raise DataError(
            f"{name}: the column '{visible(label or 'label')}' of the labels is missing (columns: "
            f"{list_columns(schema.names)}); pass label_column=NAME, null or -1 marks unlabelled "
            "rows."
        )
    if not choose_kept(name, schema, None, [it for it in schema.names if it != label]):
        raise DataError(
            f"{name}: the column '{visible(label)}' must hold labels, whole numbers or texts; got "
            f"{schema.field(label).type!s:.80}."
        )
    kept = [label, *choose_kept(name, schema, None, [embeddings.column, label])]
    table = pa.Table.from_batches(list(read_kept(name, embeddings.source, schema, kept)))
    return table.replace_schema_metadata(schema.metadata)


def _join(places: Sequence[Place], tables: Sequence["pa.Table"]) -> "pa.Table":
    """Put the rows of all files into one table."""
    import pyarrow as pa

    filled = [table for table in tables if table.num_rows]
    try:
        return pa.concat_tables(filled, promote_options="permissive")
    except (ValueError, TypeError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200].rstrip(". ")
        raise DataError(
            f"{places[0]}: a column of the same name has another type in another file ({reason})."
        ) from error


def _read_labels(
    name: str, column: "pa.ChunkedArray", title: str
) -> tuple[Tensor, tuple[str, ...]]:
    """Return a number for each row, -1 where it has no label, and the names of the numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        return _number_names(column)
    if pa.types.is_null(column.type):
        return torch.full((len(column),), -1), ()
    where = f"{name}: the column '{visible(title)}'"
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        try:
            values = np.asarray(pc.fill_null(column.cast(pa.int64()), -1).to_numpy())
        except pa.ArrowInvalid as error:
            raise DataError(f"{where} must have labels below 2**63.") from error
    elif pa.types.is_floating(column.type):
        values = _whole(where, np.asarray(column.to_numpy()))
    else:
        raise DataError(f"{where} must hold whole numbers or texts as labels; got {column.type}.")
    if values.min() < -1:
        raise DataError(f"{where} must have labels of at least -1; got {values.min()}.")
    return torch.from_numpy(values.copy()), ()


def _whole(where: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return floating-point labels as whole numbers; NaN marks unlabelled rows."""
    filled = np.where(np.isnan(values), -1.0, values)
    wrong = filled[(filled != np.round(filled)) | (np.abs(filled) >= 2**53)]
    if len(wrong):
        raise DataError(f"{where} must hold whole numbers or texts as labels; got {wrong[0]}.")
    return filled.astype(np.int64)


def _number_names(column: "pa.ChunkedArray") -> tuple[Tensor, tuple[str, ...]]:
    """Number the names of classes in their order; no name means no label."""
    import pyarrow as pa

    joined = column.unify_dictionaries().combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # without rows
        return torch.empty(0, dtype=torch.int64), ()
    texts = [str(text) for text in joined.dictionary.to_pylist()]
    places = np.asarray(joined.indices.fill_null(-1).to_numpy(zero_copy_only=False))
    used = set(np.unique(places).tolist())
    names = sorted({text for number, text in enumerate(texts) if text and number in used})
    numbers = {name: number for number, name in enumerate(names)}
    table = np.array([*(numbers.get(text, -1) for text in texts), -1], dtype=np.int64)
    return torch.from_numpy(table[places]), tuple(names)


def _stored_names(metadata: dict[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """Return the names of classes that the package ``datasets`` stores for a column."""
    try:
        with parser_errors():
            facts = json.loads((metadata or {}).get(b"huggingface", b"{}"))
            names = facts["info"]["features"][column]["names"]
            return tuple(map(str, names)) if isinstance(names, list) else ()
    except ValueError:
        return ()
