"""Feature tables from Parquet: every writer, labels of every kind, and what is refused."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from infoshot import (
    DataError,
    FeatureTable,
    InvalidArgumentError,
    bench,
    label_table,
    read_features,
)
from infoshot.core import embedding_column, memory
from infoshot.features import digest, open_table, write_features
from tests.parquet_files import WRITERS, rows_of_fixed_lists, rows_of_lists

Z = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float16).astype(np.float32)
NAMES = ["dog", None, "cat", "", "dog"] * 4
LABELS = torch.tensor([1, -1, 0, -1, 1] * 4)
IDS = [f"photo {number}" for number in range(20)]


def write(path, z=Z, **columns):
    columns = {"label": NAMES[: len(z)], **columns}
    pq.write_table(pa.table({**columns, "embedding": rows_of_lists(z)}), path)
    return path


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_every_writer_are_read(writer, tmp_path):
    path = tmp_path / "mine.parquet"
    WRITERS[writer](path, Z, {"id": IDS, "label": NAMES, "size": list(range(20))})
    table = read_features(path)
    assert torch.equal(table.features.float(), torch.from_numpy(Z))
    assert torch.equal(table.labels, LABELS)
    assert table.class_names == ("cat", "dog")
    assert table.columns.to_pydict() == {"id": IDS, "size": list(range(20))}


@pytest.mark.parametrize(("writer", "dtype"), [
    ("pyarrow, float16", torch.float16),
    ("polars, Array", torch.float32),
    ("pyarrow, float64", torch.float64),
])  # fmt: skip
def test_the_type_of_the_numbers_is_kept(writer, dtype, tmp_path):
    WRITERS[writer](tmp_path / "mine.parquet", Z, {"label": NAMES})
    assert read_features(tmp_path / "mine.parquet").features.dtype == dtype


LABEL_COLUMNS = {
    "whole numbers": (pa.array([3, -1, None, 0], pa.int32()), [3, -1, -1, 0]),
    "unsigned": (pa.array([3, None, 1, 0], pa.uint8()), [3, -1, 1, 0]),
    "from pandas": (pa.array([3.0, float("nan"), None, 0.0]), [3, -1, -1, 0]),
    "truth values": (pa.array([True, False, None, True]), [1, 0, -1, 1]),
    "categories": (pa.array(["b", None, "a", "b"]).dictionary_encode(), [1, -1, 0, 1]),
    "large texts": (pa.array(["b", None, "a", "b"], pa.large_string()), [1, -1, 0, 1]),
    "nothing": (pa.nulls(4), [-1, -1, -1, -1]),
    "large numbers": (pa.array([2**62 + 1, None, 0, 1]), [2**62 + 1, -1, 0, 1]),
}


@pytest.mark.parametrize("kind", LABEL_COLUMNS)
def test_labels_of_every_kind(kind, tmp_path):
    column, expected = LABEL_COLUMNS[kind]
    path = write(tmp_path / "mine.parquet", Z[:4], label=column)
    assert read_features(path).labels.tolist() == expected


def test_numbered_classes_have_the_names_that_datasets_stores(tmp_path):
    datasets = pytest.importorskip("datasets")
    kinds = {
        "label": datasets.ClassLabel(names=["wolf", "ant", "bee"]),
        "vector": datasets.List(datasets.Value("float32")),
    }
    rows = {"label": [2, 0, None, 1], "vector": Z[:4].tolist()}
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    made.to_parquet(tmp_path / "mine.parquet")
    table = read_features(tmp_path / "mine.parquet")
    assert table.labels.tolist() == [2, 0, -1, 1]
    assert table.class_names == ("wolf", "ant", "bee")


def test_damaged_names_of_datasets_are_ignored(tmp_path):
    for number, text in enumerate((b"{", b"[]", b'{"info": 3}', json.dumps(None).encode())):
        columns = {"label": [0, 1], "embedding": rows_of_lists(Z[:2])}
        table = pa.table(columns).replace_schema_metadata({b"huggingface": text})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        assert read_features(tmp_path / f"{number}.parquet").class_names == ()


def test_a_folder_and_a_pattern_are_one_table(tmp_path):
    for number in (2, 0, 1):  # names decide about the order
        some = slice(5 * number, 5 * number + 5)
        names = NAMES[some] if number else ["bee"] * 5  # another set of names in one file
        write(tmp_path / f"part{number}.parquet", Z[some], label=names, id=IDS[some])
    (tmp_path / ".hidden.parquet").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("not Parquet")
    table = read_features(tmp_path)
    assert torch.equal(table.features, torch.from_numpy(Z[:15]))
    assert table.class_names == ("bee", "cat", "dog")
    assert table.labels.tolist() == [0] * 5 + [2, -1, 1, -1, 2] * 2
    assert table.columns["id"].to_pylist() == IDS[:15]
    some = read_features(str(tmp_path / "part[12].parquet"))
    assert some.columns["id"].to_pylist() == IDS[5:15]
    before = digest(tmp_path)
    assert before == digest(tmp_path / "*.parquet") != digest(tmp_path / "part[12].parquet")
    write(tmp_path / "part1.parquet", Z[:5])
    assert digest(tmp_path) != before


def test_columns_are_chosen_by_name(tmp_path):
    path = write(tmp_path / "a.parquet", other=rows_of_fixed_lists(-Z), truth=["x", "y"] * 10)
    with pytest.raises(DataError, match=r"the columns other, embedding all hold lists of float.*"
                       r"pass column=NAME"):  # fmt: skip
        read_features(path)
    table = read_features(path, column="other", label_column="truth")
    assert torch.equal(table.features, -torch.from_numpy(Z))
    assert table.labels.tolist() == [0, 1] * 10
    assert table.columns.column_names == ["label"]
    for name in ("column", "label_column"):
        with pytest.raises(InvalidArgumentError, match=f"{name} must be left out for a feature t"):
            open_table(table, **{name: "other"})
        write_features(tmp_path / "a.safetensors", FeatureTable(table.features, table.labels))
        with pytest.raises(InvalidArgumentError, match=f"{name} must be left out .* not a Parquet"):
            read_features(tmp_path / "a.safetensors", **{name: "other"})


def test_images_and_lists_are_not_kept(tmp_path):
    path = write(
        tmp_path / "a.parquet",
        image=pa.array([{"bytes": b"..", "path": "a.jpg"}] * 20),
        raw=[b".."] * 20,
        tags=[["a", "b"]] * 20,
        day=pa.array([1] * 20, pa.timestamp("s")),
    )
    assert read_features(path).columns.column_names == ["day"]


def pieces(table):
    """The same rows as a table of polars, pandas and pyarrow, and in several pieces."""
    import polars as pl

    yield table
    yield pl.from_arrow(table)
    yield pa.concat_tables([table.slice(0, 7), table.slice(7, 0), table.slice(7)])
    yield table.to_pandas()


def test_arrow_tables_of_several_packages_are_read():
    columns = {"id": IDS, "label": NAMES, "v": rows_of_fixed_lists(Z), "raw": [b""] * 20}
    for given in pieces(pa.table(columns)):
        table = open_table(given)
        assert torch.equal(table.features, torch.from_numpy(Z))
        assert torch.equal(table.labels, LABELS)
        assert table.class_names == ("cat", "dog")
        assert table.columns.to_pydict() == {"id": IDS}
        assert label_table(given).rows.tolist() == (LABELS < 0).nonzero().flatten().tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrow_embeddings_in_one_piece_are_not_copied(dtype):
    numbers = pa.array(Z.astype(dtype).ravel())
    rows = pa.FixedSizeListArray.from_arrays(numbers, Z.shape[1])
    table = open_table(pa.table({"label": NAMES, "v": rows}))
    assert table.features.data_ptr() == numbers.buffers()[1].address
    assert np.array_equal(table.features, Z.astype(dtype))


def test_arrow_tables_that_cannot_be_used_are_refused():
    for rows, message in (
        (_rows([1.0], None), "the Arrow table: row 1 of the column 'v' is null"),
        (_rows([1.0], [float("inf")]), "the Arrow table: the column 'v' must be finite"),
        (_rows([1.0], [1.0, 2.0]), "row 1 of the column 'v' has 2 numbers, but the first row has"),
    ):
        with pytest.raises(DataError, match=message):
            open_table(pa.table({"label": [0, 1], "v": rows}))
    with pytest.raises(DataError, match="the Arrow table has no rows"):
        open_table(pa.table({"label": pa.nulls(0), "v": _rows()}))
    with pytest.raises(DataError, match=r"the Arrow table: the class name 'a.*contains the char"):
        open_table(pa.table({"label": ["a\r"], "v": _rows([1.0])}))
    with pytest.raises(DataError, match=r"the Arrow table: the column 'x' is not there"):
        bench(pa.table({"label": [0], "v": _rows([1.0])}), column="x")


def test_bench_is_the_same_on_parquet(tmp_path, embedded):
    rows = torch.cat([(embedded.labels == k).nonzero().flatten()[:30] for k in range(5)])
    table = FeatureTable(embedded.features[rows], embedded.labels[rows])
    columns = {
        "label": table.labels.numpy(),
        "vector": rows_of_fixed_lists(table.features.numpy()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    how = {"methods": "tim-adm", "shots": 1, "tasks": 5}
    found, expected = bench(tmp_path / "a.parquet", **how), bench(table, **how)
    assert found.rows[0].mean == expected.rows[0].mean
    assert found.rows[0].features == "a.parquet"


def _with_null(path):
    rows = pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"label": [0, 1, 1], "embedding": rows}), path)


def _table(path, **columns):
    pq.write_table(pa.table(columns), path)


def _rows(*rows, kind=None):
    return pa.array([*rows], kind or pa.list_(pa.float32()))


REFUSED = {
    "no lists": (lambda p: _table(p, id=[1], label=["a"]), r"no column holds lists of floating-point numbers \(columns: id, label\)"),
    "whole numbers": (lambda p: _table(p, embedding=[[1, 2]], label=["a"]), r"no column holds lists .*; if 'embedding' has the embeddings, convert its numbers to float32\.$"),
    "no labels": (lambda p: _table(p, id=[1], v=_rows([1.0])), r"the column 'label' of the labels is missing \(columns: id, v\); pass label_column=NAME"),
    "null row": (_with_null, r"row 1 of the column 'embedding' is null; remove rows without an embedding"),
    "null number": (lambda p: _table(p, label=[0, 1], v=_rows([1.0, 2.0], [3.0, None])), r"row 1 of the column 'v' has a null among its numbers"),
    "null of fixed size": (lambda p: _table(p, label=[0, 1], v=_rows([1.0], None, kind=pa.list_(pa.float32(), 1))), r"row 1 of the column 'v' is null"),
    "first row null": (lambda p: _table(p, label=[0, 1], v=_rows(None, [1.0])), r"row 0 of the column 'v' is null"),
    "widths": (lambda p: _table(p, label=[0, 1, 1], v=_rows([1.0, 2.0], [1.0, 2.0], [3.0])), r"row 2 of the column 'v' has 1 numbers, but the first row has 2; all rows must have the same width"),
    "no numbers": (lambda p: _table(p, label=[0, 1], v=_rows([], [1.0])), r"embeddings must have 1 to 16,777,216 numbers; the first row of the column 'v' has 0"),
    "nan": (lambda p: _table(p, label=[0, 1], v=_rows([1.0, 2.0], [float("nan"), 2.0])), r"the column 'v' must be finite; got nan at index \(1, 0\)"),
    "infinite": (lambda p: _table(p, label=[0, 1], v=_rows([1.0, 2.0], [1.0, float("-inf")])), r"the column 'v' must be finite; got -inf at index \(1, 1\)"),
    "no rows": (lambda p: _table(p, label=pa.nulls(0), v=_rows()), r"the file has no rows"),
    "fractions": (lambda p: _table(p, label=[0.5, 1.0], v=_rows([1.0], [2.0])), r"must hold whole numbers or texts as labels; got 0.5"),
    "dates": (lambda p: _table(p, label=pa.array([1], pa.timestamp("s")), v=_rows([1.0])), r"must hold whole numbers or texts as labels; got timestamp"),
    "lists of labels": (lambda p: _table(p, label=[["a"]], v=_rows([1.0])), r"the column 'label' must hold labels, whole numbers or texts; got list"),
    "low labels": (lambda p: _table(p, label=[-2], v=_rows([1.0])), r"must have labels of at least -1; got -2"),
    "high labels": (lambda p: _table(p, label=pa.array([2**63], pa.uint64()), v=_rows([1.0])), r"must have labels below 2\*\*63"),
    "odd names": (lambda p: _table(p, label=["a\nb"], v=_rows([1.0])), r"contains the character"),
    "long text": (lambda p: _table(p, label=[0], id=["x" * 70_000], v=_rows([1.0])), r"the column 'id' has a text of more than 65,536 bytes"),
    "twice": (lambda p: pq.write_table(pa.table([pa.array([0]), _rows([1.0]), _rows([1.0])], names=["label", "v", "v"]), p), r"the columns v, v all hold"),
    "truncated": (lambda p: p.write_bytes(write(p).read_bytes()[:-40]), r"truncated, damaged or not a Parquet file \("),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(case, tmp_path):
    make, message = REFUSED[case]
    path = tmp_path / "mine.parquet"
    make(path)
    with pytest.raises(DataError, match=message) as caught:
        read_features(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_wrong_column_is_named_with_those_that_are_there(tmp_path):
    path = write(tmp_path / "mine.parquet", id=IDS)
    with pytest.raises(DataError, match=r"the column 'vector' is not there \(columns: "
                       r"label, id, embedding\)"):  # fmt: skip
        read_features(path, column="vector")
    with pytest.raises(DataError, match=r"'id' must hold lists of float16, float32 or float64; "
                       r"got string \(columns: label, id, embedding\)"):  # fmt: skip
        read_features(path, column="id")
    with pytest.raises(DataError, match=r"got list<.*> \(columns: .*\); convert its numbers to fl"):
        read_features(write(path, id=[[1]] * len(IDS)), column="id")
    with pytest.raises(DataError, match=r"the column 'truth' of the labels is missing"):
        read_features(path, label_column="truth")


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    write(tmp_path / "a.parquet", Z[:4])
    write(tmp_path / "b.parquet", Z[:4, :5])
    with pytest.raises(DataError, match=r"b\.parquet: its embeddings have 5 numbers, but those of "
                       r"a\.parquet have 6"):  # fmt: skip
        read_features(tmp_path)
    write(tmp_path / "b.parquet", Z[:4], label=[1, 2, 3, 4])
    with pytest.raises(DataError, match=r"a column of the same name has another type in another"):
        read_features(tmp_path)


def test_a_place_without_parquet_is_refused(tmp_path):
    with pytest.raises(DataError, match="a folder, not a feature file, and it has no Parquet"):
        read_features(tmp_path)
    with pytest.raises(DataError, match=r"\*\.parquet: no Parquet file is there"):
        read_features(tmp_path / "*.parquet")


def test_a_small_file_of_many_repeated_rows_is_refused_before_it_is_read(tmp_path, monkeypatch):
    n, dim = 200_000, 512
    flat = pa.array(np.zeros(n * dim, np.float32))
    sink = io.BytesIO()
    rows = pa.FixedSizeListArray.from_arrays(flat, dim)
    pq.write_table(pa.table({"label": np.zeros(n), "v": rows}), sink, compression="zstd")
    (tmp_path / "bomb.parquet").write_bytes(sink.getvalue())
    monkeypatch.setattr(embedding_column, "read_batches", None)
    with pytest.raises(
        DataError, match=r"declares 0\.[48] GB of values in a file of .* bytes, more"
    ):
        read_features(tmp_path / "bomb.parquet")


def test_so_is_one_of_many_repeated_values_in_other_columns(tmp_path, monkeypatch):
    columns = {f"c{number}": np.zeros(2000, np.int8) for number in range(50)}
    path = write(tmp_path / "mine.parquet", np.ones((2000, 1)), label=["a"] * 2000, **columns)
    monkeypatch.setattr(embedding_column, "_LARGE", 1000)
    monkeypatch.setattr(embedding_column, "_HIGHEST_RATIO", 20)
    with pytest.raises(DataError, match=r"declares 0\.0 GB of values in a file of .* bytes, more"):
        read_features(path)


def test_embeddings_larger_than_the_memory_are_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "mine.parquet")
    monkeypatch.setattr("infoshot.features.parquet_table.total_memory", lambda: 100)
    assert memory.total_memory() > 100
    with pytest.raises(DataError, match="the embeddings are larger than the memory"):
        read_features(path)
