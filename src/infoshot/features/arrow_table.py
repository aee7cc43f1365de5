"""Arrow tables in memory as a feature table, such as those of pyarrow, polars and pandas.

A column of embeddings in one piece is used where it is, without a copy.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from infoshot.core.checks import check_finite
from infoshot.core.embedding_column import choose_column, first_width, view_rows
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.kept_columns import encode_texts
from infoshot.core.places import AnyPlace
from infoshot.core.text import visible
from infoshot.core.types import FeatureTable
from infoshot.features.files import check_names, check_no_columns, read_features
from infoshot.features.label_column import choose_others, make_table

_NAME = "the Arrow table"


@runtime_checkable
class ArrowTable(Protocol):
    """Anything that passes its rows on as Arrow data, such as a data frame of polars.

    Examples
    --------
    >>> import pyarrow
    >>> isinstance(pyarrow.table({"text": ["a cat"]}), ArrowTable)
    True
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


def open_table(
    features: AnyPlace | ArrowTable | FeatureTable,
    *,
    column: str | None = None,
    label_column: str | None = None,
) -> FeatureTable:
    """Return a feature table as it is, convert an Arrow table, or read a file.

    See :func:`read_features` for the columns.

    Raises
    ------
    InvalidArgumentError
        If columns are given for a feature table.
    DataError
        If the table or the file cannot be used.

    Examples
    --------
    >>> from infoshot.features import default_features_path
    >>> open_table(default_features_path()).features.shape
    torch.Size([12000, 512])
    """
    if isinstance(features, FeatureTable):
        check_no_columns("a feature table", column=column, label_column=label_column)
        return features
    if isinstance(features, ArrowTable):
        table = read_arrow_table(features, column=column, label_column=label_column)
        check_names("the Arrow table", table.class_names, int(table.labels.max()))
        return table
    return read_features(features, column=column, label_column=label_column)


def read_arrow_table(
    given: ArrowTable, *, column: str | None = None, label_column: str | None = None
) -> FeatureTable:
    """Make a feature table from an Arrow table; the arguments are those of ``read_features``.

    Raises
    ------
    DataError
        As for Parquet, see :func:`infoshot.features.parquet_table.read_parquet_table`.
    """
    import pyarrow as pa

    table: Any = pa.table(given)
    column = choose_column(_NAME, table.schema, column)
    others = choose_others(_NAME, table.schema, column, label_column)
    if not table.num_rows:
        raise DataError(f"{_NAME} has no rows.")
    features = _read_rows(table.column(column), column)
    return make_table(_NAME, features, encode_texts(table.select(others)))


def _read_rows(rows: Any, column: str) -> Tensor:  # noqa: ANN401 - an array in pieces
    """View the embeddings as a tensor, ``(row, dim)``; several pieces are copied into one."""
    pieces = [piece for piece in rows.chunks if len(piece)]
    dim, first, parts = first_width(_NAME, column, pieces[0]), 0, []
    for piece in pieces:
        numbers = view_rows(_NAME, column, piece, dim, first)
        parts.append(from_dlpack(numbers).view(-1, dim))
        first += len(piece)
    features = parts[0] if len(parts) == 1 else torch.cat(parts)
    try:
        check_finite(f"the column '{visible(column)}'", features)
    except InvalidArgumentError as error:
        raise DataError(f"{_NAME}: {error}") from error
    return features
