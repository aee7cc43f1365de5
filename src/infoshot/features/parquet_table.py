"""Parquet files as a feature table: a column of embeddings, one of labels, and the others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoshot.core.checks import check_finite
from infoshot.core.embedding_column import EmbeddingFile, open_embeddings
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.kept_columns import encode_texts, read_kept
from infoshot.core.memory import total_memory
from infoshot.core.places import Place, open_place
from infoshot.core.text import visible
from infoshot.core.types import FeatureTable
from infoshot.features.label_column import choose_others, make_table

if TYPE_CHECKING:
    import pyarrow as pa


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
    return make_table(str(places[0]), features, others)


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
    kept = choose_others(name, schema, embeddings.column, label_column)
    batches = read_kept(name, embeddings.source, schema, kept)
    table = pa.concat_tables(encode_texts(pa.Table.from_batches([batch])) for batch in batches)
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
