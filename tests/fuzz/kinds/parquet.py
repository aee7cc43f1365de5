"""Parquet with a column of embeddings: as a feature file, and as a shard."""

import io
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.kinds.features import N_ROWS, FeatureFile, make_queries
from tests.fuzz.kinds.made import CLASSES, make_rows, make_support, write
from tests.fuzz.mutations import TEXTS, damage
from tests.fuzz.runner import Case, Kind, run_command


class ParquetTable(FeatureFile):
    name, fast = "parquet", True

    def prepare(self, intact: Path) -> None:
        z, y = make_rows(N_ROWS)
        names = [CLASSES[label] for label in y]
        some = [name if row < 15 else None for row, name in enumerate(names)]
        ids = [f"photo {row}" for row in range(N_ROWS)]
        tables = [
            {"label": names, "v": _fixed(z.astype(np.float32))},
            {"id": ids, "label": some, "v": _lists(z, pa.float32())},
            {"label": np.where(np.arange(N_ROWS) < 15, y, -1), "v": _lists(z, pa.float64())},
            {"label": names, "v": _fixed(z.astype(np.float16))},
        ]
        for number, columns in enumerate(tables):
            write(intact / f"table{number}.parquet", _format(columns, number))
        make_queries(intact)

    def damage(self, random: Random, content: bytes) -> tuple[bytes, str]:
        return damage(random, content)

    def pack(self, random: Random, arrays: dict[str, np.ndarray], names: Any) -> bytes:
        """Odd arrays as columns as far as Parquet has them, sometimes with odd texts."""
        z = arrays["features"]
        z = z.astype(np.float64) if z.dtype.kind == "u" else z  # Arrow has no mixed large numbers
        kinds = {2: list, 1: lambda column: column.tolist(), 3: lambda z: [z[0].tolist()]}
        columns: dict[str, Any] = {"v": kinds[z.ndim](z.tolist() if z.ndim == 2 else z)}
        n = len(columns["v"])
        labels = np.ravel(arrays["labels"])[:n]
        missing = [None] * (n - len(labels))
        columns["label"] = [*labels.astype(np.int64).tolist(), *missing] if missing else labels
        if random.random() < 0.3:
            texts = [text.encode("utf-8", "replace").decode() for text in TEXTS]
            columns[random.choice(("label", "id"))] = [random.choice(texts) for _ in range(n)]
        return _format(columns, random.randrange(3))


class ParquetShards(Kind):
    """A Parquet shard that is damaged, beside one that is not."""

    name = "parquet-shards"

    def prepare(self, intact: Path) -> None:
        make_support(intact / "support.safetensors")
        z = make_rows(60, seed=1)[0].astype(np.float32)
        for number, some in enumerate((slice(0, 30), slice(30, 60))):
            columns = {"id": list(range(60))[some], "v": _fixed(z[some])}
            write(intact / "queries" / f"{number}.parquet", _format(columns, number))

    def check(self, case: Case) -> None:
        case.copy("support.safetensors", "queries")
        _solve_shards(case)

    def attempt(self, case: Case) -> None:
        case.copy("support.safetensors", "queries")
        path = case.work / "queries" / case.random.choice(("0.parquet", "1.parquet"))
        content, done = damage(case.random, path.read_bytes())
        path.write_bytes(content)
        case.note(f"{path.name}: {done}")
        _solve_shards(case)


def _solve_shards(case: Case) -> None:
    run_command(
        "solve-shards", "--support", "support.safetensors", "--queries", "queries", "--out", "out",
        "--set", "n_steps=3",
    )  # fmt: skip
    for name in ("0.parquet", "1.parquet"):
        n_rows = pq.read_metadata(case.work / "queries" / name).num_rows
        assert pq.read_metadata(case.work / "out" / "labels" / name).num_rows == n_rows


def _fixed(z: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(z.ravel()), z.shape[1])


def _lists(z: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.array([[float(x) for x in row] for row in z], pa.list_(kind))


def _format(columns: dict[str, Any], number: int) -> bytes:
    sink = io.BytesIO()
    how = ({}, {"compression": "zstd", "row_group_size": 40}, {"compression": "none"})[number % 3]
    pq.write_table(pa.table(columns), sink, **how)
    return sink.getvalue()


KINDS = (ParquetTable(), ParquetShards())
