"""Columns beside the embeddings: memory does not grow with the texts of a row group."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infoshot.core import kept_columns
from infoshot.core.errors import DataError
from infoshot.core.kept_columns import read_kept
from infoshot.features import read_features
from tests.parquet_files import rows_of_fixed_lists

MB = 2**20


@pytest.fixture
def pool():
    """Arrow's memory during a test, whose peak it knows."""
    before, own = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(own)
    yield own
    pa.set_memory_pool(before)


def stored(texts, **how):
    table, sink = pa.table({"id": texts}), io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink, table.schema


def test_distinct_texts_of_a_large_row_group_are_not_collected(pool):
    texts = [f"https://example.org/{number * 7919:012}.jpg" for number in range(150_000)]
    sink, schema = stored(texts)
    used = pool.max_memory()
    found = [text for batch in read_kept("a", sink, schema, ["id"]) for text in batch["id"]]
    assert len(found) == 150_000
    assert found[-1].as_py() == texts[-1]
    assert pool.max_memory() <= max(used, 12 * MB)


@pytest.mark.parametrize("how", [{}, {"use_dictionary": False}])
def test_a_table_has_a_repeated_text_once_per_batch(tmp_path, pool, how):
    """60,000 bytes 10,000 times would be 600 MB."""
    table = {"id": ["x" * 60_000] * 10_000, "v": rows_of_fixed_lists(np.ones((10_000, 1)))}
    pq.write_table(pa.table({**table, "label": [0, 1] * 5000}), tmp_path / "a.parquet", **how)
    del table
    used = pool.max_memory()
    found = read_features(tmp_path / "a.parquet")
    assert found.columns["id"][9_999].as_py() == "x" * 60_000
    assert pool.max_memory() <= used  # that of the texts when they were written


def test_a_text_that_is_too_long_is_refused_before_it_is_repeated(monkeypatch):
    monkeypatch.setattr(kept_columns, "BATCH_ROWS", None)  # no rows are read
    sink, schema = stored(["a", "b" * 70_000] * 10)
    with pytest.raises(DataError, match="the column 'id' has a text of more than 65,536 bytes"):
        next(read_kept("a", sink, schema, ["id"]))


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string()])
@pytest.mark.parametrize("n", [0, 3])
def test_texts_of_all_kinds_are_strings(kind, n):
    sink, schema = stored(pa.array([None, "b", "c"][:n], kind))
    (batch,) = read_kept("a", sink, schema, ["id"])
    assert batch.schema.field("id").type == pa.string()
    assert batch["id"].to_pylist() == [None, "b", "c"][:n]
