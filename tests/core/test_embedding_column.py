"""Columns of embeddings: batches are views of Arrow's arrays, and nested columns are counted."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infoshot.core import embedding_column
from infoshot.core.embedding_column import has_embeddings, list_columns, open_embeddings
from infoshot.core.errors import DataError
from tests.parquet_files import rows_of_fixed_lists, rows_of_lists

Z = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)


def stored(**columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=20)
    return sink


@pytest.mark.parametrize("make", [rows_of_lists, rows_of_fixed_lists])
def test_batches_cross_row_groups(make, monkeypatch):
    monkeypatch.setattr(embedding_column, "_BATCH_NUMBERS", 3 * 7)
    found = open_embeddings("a", stored(id=list(range(50)), v=make(Z)))
    batches = list(found.batches())
    assert max(map(len, batches)) <= 7
    assert np.array_equal(np.concatenate(batches), Z)
    assert (found.n_rows, found.dim, found.dtype, found.n_bytes) == (50, 3, "float32", 600)


def test_columns_beside_nested_ones_are_found():
    """The sizes of a column are those of its own leaf, behind the leaves of the others."""
    nested = [{"a": [{"b": 1, "c": "x"}], "d": {"e": 2.0}}] * 50
    table = {
        "first": nested,
        "m": pa.array([[("k", 1.0)]] * 50, pa.map_(pa.string(), pa.float32())),
    }
    found = open_embeddings("a", stored(**table, v=rows_of_lists(Z), last=nested))
    assert np.array_equal(np.concatenate(list(found.batches())), Z)


def test_files_without_rows_have_a_width_only_by_their_type():
    assert open_embeddings("a", stored(v=rows_of_lists(Z[:0]))).dim == 0
    found = open_embeddings("a", stored(v=rows_of_fixed_lists(Z[:0])))
    assert (found.n_rows, found.dim, list(found.batches())) == (0, 3, [])


def test_other_files_have_no_embeddings():
    assert has_embeddings("a", stored(v=rows_of_lists(Z)))
    assert not has_embeddings("a", stored(v=[[1, 2]], w=["x"], x=[1.0]))
    with pytest.raises(DataError, match=r"a: truncated, damaged or not a Parquet file \("):
        has_embeddings("a", io.BytesIO(b"PAR1"))


def test_long_lists_of_columns_are_cut():
    assert list_columns([]) == "none"
    assert list_columns(["a", "b\n"]) == r"a, b\n"
    assert list_columns([f"c{n}" for n in range(30)]).endswith("c19 and 10 more")


def test_fewer_rows_than_declared_are_noticed():
    found = open_embeddings("a", stored(v=rows_of_lists(Z)))
    object.__setattr__(found, "n_rows", 60)
    with pytest.raises(DataError, match=r"a: truncated.*50 rows instead of 60"):
        list(found.batches())
