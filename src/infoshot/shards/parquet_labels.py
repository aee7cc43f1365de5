"""Labels of Parquet shards as Parquet, behind the other columns of the shard, such as ids."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoshot.core.atomic import open_atomically
from infoshot.core.embedding_column import open_parquet
from infoshot.core.errors import DataError
from infoshot.core.kept_columns import add_columns, write_batches
from infoshot.core.regular_file import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = "infoshot.labels"  # of the entry in the metadata


def write_parquet_labels(
    path: Path,
    kept: Iterable["pa.RecordBatch"],
    rows: Mapping[str, Tensor],
    *,
    solve: str,
    class_names: Sequence[str],
) -> None:
    """Write the labels of a shard, as ``label``, ``confidence`` and ``margin``.

    Parameters
    ----------
    path
        The file.
    kept
        The columns of the shard that go with the labels, in batches.
    rows
        ``labels``, numbers of classes, and the other columns, ``(row,)``.
    solve
        Key of the solve.
    class_names
        Names of the classes.
    """
    import pyarrow as pa

    labels = rows["labels"]
    columns = {"label": pa.array(class_names, pa.string()).take(pa.array(labels.numpy()))}
    columns |= {name: pa.array(rows[name].numpy()) for name in ("confidence", "margin")}
    counts = labels.long().bincount(minlength=len(class_names))
    facts = {"solve": solve, "counts": counts.tolist()}
    with open_atomically(path) as file:
        write_batches(file, add_columns(kept, columns), {_KEY: json.dumps(facts)})


def read_parquet_counts(path: Path, *, solve: str, n_rows: int, n_classes: int) -> Tensor | None:
    """Count the labels of a file, ``(class,)``; ``None`` unless the same solve wrote them."""
    facts = read_label_facts(path)
    if facts is None or facts.get("solve") != solve or facts["rows"] != n_rows:
        return None
    counts = facts.get("counts")
    if not isinstance(counts, list) or len(counts) != n_classes:
        return None
    if not all(type(n) is int and 0 <= n <= n_rows for n in counts) or sum(counts) != n_rows:
        return None
    return torch.tensor(counts, dtype=torch.int64)


def read_label_facts(path: Path) -> dict[str, Any] | None:
    """Read what a solve recorded in a file of labels; ``None`` if it wrote no such file."""
    try:
        with open_regular(path) as source:
            file = open_parquet(str(path), source)
            text = (file.schema_arrow.metadata or {}).get(_KEY.encode(), b"")
            facts = json.loads(text)
            return {**facts, "rows": file.metadata.num_rows} if isinstance(facts, dict) else None
    except (OSError, ValueError, RecursionError, DataError):
        return None
