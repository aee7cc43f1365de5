"""A shard of features as Parquet: a row per image, with path, id if it has one, and features."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from infoshot.core.atomic import open_atomically


def write_parquet_features(
    path: Path,
    features: Tensor,
    columns: Mapping[str, Sequence[str]],
    facts: Mapping[str, Any],
    *,
    kind: str,
) -> None:
    """Write a shard; :func:`infoshot.core.parquet_file.read_facts` reads the facts.

    Parameters
    ----------
    path
        The file.
    features
        Shape ``(image, dim)``, float16 or float32: the column ``embedding``.
    columns
        Texts by name, one for each image.
    facts, kind
        Anything that JSON can hold, and the name of the entry in the metadata.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(features.contiguous().view(-1).numpy())
    table = pa.table(
        {
            **{name: pa.array(texts, pa.string()) for name, texts in columns.items()},
            "embedding": pa.FixedSizeListArray.from_arrays(flat, features.shape[1]),
        }
    )
    text = json.dumps(dict(facts), sort_keys=True)
    with open_atomically(path) as file:
        # Features hardly repeat, and a dictionary of them is slow to read.
        pq.write_table(table.replace_schema_metadata({kind: text}), file, use_dictionary=[*columns])
