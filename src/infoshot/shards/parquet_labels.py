"""Labels of Parquet shards as Parquet, behind the other columns of the shard, such as ids."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoshot.core.arrow_views import copy_texts, view_as_arrow
from infoshot.core.atomic import open_atomically
from infoshot.core.errors import DataError
from infoshot.core.kept_columns import add_columns, write_batches
from infoshot.core.memory import release_arrow_memory
from infoshot.core.parquet_file import read_facts

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "labels"  # the entry of the metadata


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
    names, places = copy_texts(class_names), view_as_arrow(labels.numpy())
    columns = {"label": pa.DictionaryArray.from_arrays(places, names)}  # as text batch by batch
    columns |= {name: view_as_arrow(rows[name].numpy()) for name in ("confidence", "margin")}
    counts = labels.long().bincount(minlength=len(class_names))
    facts = {"solve": solve, "counts": counts.tolist()}
    with open_atomically(path) as file:
        write_batches(file, add_columns(kept, columns), {KIND: json.dumps(facts)})
    release_arrow_memory()


def read_parquet_counts(path: Path, *, solve: str, n_rows: int, n_classes: int) -> Tensor | None:
    """Count the labels of a file, ``(class,)``; ``None`` unless the same solve wrote them."""
    try:
        facts, n_found = read_facts(path, KIND)
    except DataError:
        return None
    counts = facts.get("counts")
    if facts.get("solve") != solve or n_found != n_rows:
        return None
    if not isinstance(counts, list) or len(counts) != n_classes:
        return None
    if not all(type(n) is int and 0 <= n <= n_rows for n in counts) or sum(counts) != n_rows:
        return None
    return torch.tensor(counts, dtype=torch.int64)
