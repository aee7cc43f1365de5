"""The labels of Arrow tables, and the columns beside them.

Labels are texts or whole numbers; null, an empty text and -1 mark unlabelled rows. The names of
numbered classes are those that the ``datasets`` package stores with a table, if any.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from infoshot.core.embedding_column import list_columns
from infoshot.core.errors import DataError
from infoshot.core.kept_columns import choose_kept
from infoshot.core.parsing import parser_errors
from infoshot.core.text import visible
from infoshot.core.types import FeatureTable

if TYPE_CHECKING:
    import pyarrow as pa

_LABEL_COLUMNS = ("label", "labels")


def choose_others(
    name: str, schema: "pa.Schema", embeddings: str, label_column: str | None
) -> list[str]:
    """Choose the columns beside the embeddings: that of the labels first, then what can be kept.

    Raises
    ------
    DataError
        If there is no column of labels.
    """
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
    return [label, *choose_kept(name, schema, None, [embeddings, label])]


def make_table(name: str, features: Tensor, others: "pa.Table") -> FeatureTable:
    """Make a feature table; the first of the ``others`` are the labels, texts are dictionaries.

    Raises
    ------
    DataError
        If the labels cannot be used. Names of classes are not checked.
    """
    title, *kept = others.schema.names
    labels, names = _read_labels(name, others.column(0), title)
    names = names or _stored_names(others.schema.metadata, title)
    columns = others.select(kept) if kept else None
    return FeatureTable(features, labels, class_names=names, columns=columns)


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
