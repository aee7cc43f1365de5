"""``labels.parquet``: the labels of a run with probabilities, outlier scores and digests."""

import dataclasses
import io
import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infoshot.core.errors import DataError
from infoshot.labelling.decide import Decision, ImageLabel

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

STATUSES = ("labelled", "unsure", "outlier", "unreadable")
_TEXTS = ("path", "label", "runner_up", "status", "reason", "sha256")
_NUMBERS = ("confidence", "margin")
_DIGEST = re.compile("([0-9a-f]{64})?")
_LONGEST = 2**16  # characters of a text


@dataclass(frozen=True, eq=False)
class ImageRows:
    """The rows of labels.parquet."""

    labels: list[ImageLabel]
    digests: list[str]
    probabilities: list[list[float]]


def format_parquet(decision: Decision) -> bytes:
    """Format the labels of a run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = decision.labels
    columns: dict[str, Any] = {
        field.name: [getattr(label, field.name) for label in labels]
        for field in dataclasses.fields(ImageLabel)
    }
    columns["file"] = [os.fsencode(label.file.absolute()) for label in labels]
    columns["sha256"] = list(decision.digests)
    columns["outlier_score"] = decision.outlier_scores.tolist()
    columns["probabilities"] = decision.probabilities.tolist()
    table = pa.table(columns).replace_schema_metadata({"classes": json.dumps(decision.classes)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def parse_parquet(
    content: bytes, path: Path, *, n_images: int, classes: Sequence[str]
) -> ImageRows:
    """Parse what :func:`format_parquet` wrote.

    Parameters
    ----------
    content, path
        The file, and its name for messages.
    n_images, classes
        What run.json says about it.

    Raises
    ------
    DataError
        If it is damaged, or does not fit run.json.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source, texts = pa.BufferReader(content), [*_TEXTS, "file"]
        _check_form(pq.ParquetFile(source), len(content), n_images, len(classes))
        file = pq.ParquetFile(source, read_dictionary=texts)
        return _check_rows(file.read([*texts, *_NUMBERS, "probabilities"]), classes)
    except (OSError, ValueError, TypeError, LookupError, MemoryError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{path}: damaged, or not the labels of this run ({reason}).") from error


def _check_form(file: "pq.ParquetFile", n_bytes: int, n_images: int, n_classes: int) -> None:
    """Compare columns, types and sizes with what they must be, before anything is read."""
    import pyarrow as pa

    expected: dict[str, pa.DataType] = {name: pa.string() for name in _TEXTS}
    expected |= {"file": pa.binary(), **{name: pa.float64() for name in _NUMBERS}}
    expected["probabilities"] = pa.list_(pa.float64())
    schema, facts = file.schema_arrow, file.metadata
    for name, kind in expected.items():
        if schema.names.count(name) != 1:
            raise ValueError(f"it must have one column '{name}'")
        found = schema.field(name).type
        if found != kind:
            raise ValueError(f"the column '{name}' must be {kind}; got {found}")
    if facts.num_rows != n_images:
        raise ValueError(f"it has {facts.num_rows:,} rows, run.json counts {n_images:,}")
    if n_images > n_bytes:  # every row has its own path
        raise ValueError(f"{n_images:,} rows cannot be in {n_bytes:,} bytes")
    for group in range(facts.num_row_groups):
        for number in range(facts.num_columns):
            column = facts.row_group(group).column(number)
            if column.num_values > n_images * max(n_classes, 1):
                raise ValueError(f"the column '{column.path_in_schema}' has too many values")


def _check_rows(table: "pa.Table", classes: Sequence[str]) -> ImageRows:
    """Turn the table into labels; check every value."""
    columns: dict[str, list[Any]] = {name: _texts(table[name]) for name in (*_TEXTS, "file")}
    columns |= {name: table[name].to_pylist() for name in (*_NUMBERS, "probabilities")}
    allowed = {"status": {*STATUSES}, "label": {"", *classes}, "runner_up": {"", *classes}}
    for name, values in allowed.items():
        if wrong := set(columns[name]) - values:
            raise ValueError(f"the column '{name}' has the value {min(wrong)!r:.60}")
    if not all(_DIGEST.fullmatch(digest) for digest in columns["sha256"]):
        raise ValueError("the column 'sha256' has a value that is not a digest")
    for name in _NUMBERS:
        _check_shares(name, columns[name])
    for row in columns["probabilities"]:
        if row is None or len(row) != len(classes):
            raise ValueError(f"a row has not {len(classes)} probabilities")
        _check_shares("probabilities", row)
    names = [field.name for field in dataclasses.fields(ImageLabel) if field.name != "file"]
    labels = [
        ImageLabel(file=Path(os.fsdecode(file)), **dict(zip(names, values, strict=True)))
        for file, values in zip(
            columns["file"], zip(*(columns[name] for name in names), strict=True), strict=True
        )
    ]
    return ImageRows(labels, columns["sha256"], columns["probabilities"])


def _texts(column: "pa.ChunkedArray") -> list[Any]:
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


def _check_shares(name: str, values: Sequence[float | None]) -> None:
    """Check numbers between 0 and 1, with a margin for rounding; NaN is allowed."""
    for value in values:
        if value is None or not (math.isnan(value) or -0.001 <= value <= 1.001):
            raise ValueError(f"the column '{name}' has the value {value}")
