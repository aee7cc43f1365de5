"""Parquet shards give the labels of the same rows in other files, with their other columns."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from infoshot import DataError, InvalidArgumentError
from infoshot.shards import parquet_shard, solve_shards
from infoshot.shards.shard_finder import find_shards
from tests.labelling.commands import run
from tests.parquet_files import WRITERS, rows_of_fixed_lists, rows_of_lists
from tests.shards.made_shards import SIZES, make_shards
from tests.shards.test_shard_ranks import start_ranks, wait_for

STEPS = {"n_steps": 5}


@pytest.fixture
def made(tmp_path):
    return make_shards(tmp_path)


def to_parquet(made, folder, writers=("pyarrow, lists",), sizes=SIZES):
    """Write the queries as Parquet shards, with ids; one of them may have no rows."""
    folder.mkdir()
    ids = [f"photo {number}" for number in range(len(made.z_qry))]
    first = 0
    for number, size in enumerate(sizes):
        some = slice(first, first + size)
        z, path = made.z_qry[some].numpy(), folder / f"part{number}.parquet"
        if size:
            WRITERS[writers[number % len(writers)]](path, z, {"id": ids[some]})
        else:
            kind = pa.list_(pa.float32())
            pq.write_table(
                pa.table({"id": pa.array([], pa.string()), "embedding": pa.array([], kind)}), path
            )
        first += size
    return folder, ids


def read_all(out, sizes=SIZES):
    names = [out / "labels" / f"part{number}.parquet" for number in range(len(sizes))]
    tables = [pq.read_table(name) for name in names]
    assert [len(table) for table in tables] == list(sizes)
    return pa.concat_tables(tables)


def expect(made, tmp_path, **how):
    """Solve the same rows in the other formats."""
    solve_shards(made.support, made.queries, tmp_path / "plain", settings=STEPS, **how)
    names = [tmp_path / "plain" / "labels" / f"part{number}.safetensors" for number in range(5)]
    parts = [load_file(name) for name in names]
    return {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}


@pytest.mark.parametrize("writers", [
    ("pyarrow, lists", "polars, Array", "datasets"),
    ("pyarrow, fixed", "polars, List", "pyarrow, float64"),
])  # fmt: skip
def test_labels_are_those_of_other_formats_and_have_the_ids(made, tmp_path, writers):
    queries, ids = to_parquet(made, tmp_path / "parquet", writers)
    summary = solve_shards(made.support, queries, tmp_path / "out", settings=STEPS)
    expected, found = expect(made, tmp_path), read_all(tmp_path / "out")
    assert found.column_names == ["id", "label", "confidence", "margin"]
    assert found["id"].to_pylist() == ids
    assert found["label"].to_pylist() == ["abcdefg"[number] for number in expected["labels"]]
    # float32 instead of float16 shards are read in the same chunks
    np.testing.assert_allclose(found["confidence"], expected["confidence"], atol=1e-6)
    np.testing.assert_allclose(found["margin"], expected["margin"], atol=1e-6)
    assert (summary.n_queries, summary.n_shards) == (sum(SIZES), 5)
    assert not (tmp_path / "out" / "decoded").exists()


def test_pandas_is_not_imported(made, tmp_path):
    """Its import takes half a second and 25 MB."""
    queries, _ = to_parquet(made, tmp_path / "parquet", ("pyarrow, fixed",))
    script = (
        "import sys; from infoshot.shards import solve_shards; "
        "solve_shards(*sys.argv[1:], settings={'n_steps': 1}); print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", script, made.support, queries, tmp_path / "out"]
    assert subprocess.check_output(command, text=True).strip() == "False"


@pytest.mark.parametrize("method", ["tim-adm", "tim-auto"])
def test_float16_gives_the_same_bytes_as_npy(made, tmp_path, method):
    queries, _ = to_parquet(made, tmp_path / "parquet", ("pyarrow, float16",))
    solve_shards(made.support, queries, tmp_path / "out", settings=STEPS, method=method)
    expected, found = expect(made, tmp_path, method=method), read_all(tmp_path / "out")
    for name in ("confidence", "margin"):
        assert np.array_equal(found[name], expected[name])


def test_shards_of_all_formats_are_one_task(made, tmp_path):
    expected = expect(made, tmp_path)
    number = SIZES.index(1299)
    (path,) = made.queries.glob(f"part{number}.*")
    path.unlink()
    z = made.z_qry[sum(SIZES[:number]) :][:1299].numpy().astype(np.float16)
    pq.write_table(pa.table({"v": rows_of_fixed_lists(z)}), path.with_suffix(".parquet"))
    solve_shards(made.support, made.queries, tmp_path / "out", settings=STEPS)
    found = pq.read_table(tmp_path / "out" / "labels" / f"part{number}.parquet")
    assert found.column_names == ["label", "confidence", "margin"]
    assert np.array_equal(found["margin"], expected["margin"][sum(SIZES[:number]) :][:1299])
    (other,) = (tmp_path / "out" / "labels").glob("part0.*")
    assert other.suffix == ".safetensors"


def test_parquet_without_embeddings_beside_other_shards_is_ignored(made, tmp_path):
    expected = find_shards(made.queries)
    pq.write_table(pa.table({"id": [1]}), made.queries / "ids.parquet")
    assert find_shards(made.queries) == expected
    one(made.queries, v=vectors(GOOD))
    with pytest.raises(InvalidArgumentError, match=r"columns must be given for the Parquet shard"):
        find_shards(made.queries)
    (made.queries / "damaged.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"damaged\.parquet: truncated, damaged or not a Parquet"):
        find_shards(made.queries)


def test_two_processes_decode_and_label_like_one(made, tmp_path):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    solve_shards(made.support, queries, tmp_path / "one", settings={"n_steps": 10})
    made.queries = queries
    codes, output = wait_for(start_ranks(2, made, tmp_path / "two", "--set", "n_steps=10"))
    assert codes == [0, 0], output
    one, two = read_all(tmp_path / "one"), read_all(tmp_path / "two")
    assert one.select(["id", "label"]).equals(two.select(["id", "label"]))
    np.testing.assert_allclose(one["margin"], two["margin"], atol=5e-6)
    assert not (tmp_path / "two" / "decoded").exists()


def test_the_support_may_be_parquet_and_columns_have_names(made, tmp_path):
    table = pa.table({
        "name": ["abcdefg"[number] for number in made.y_sup],
        "v": rows_of_lists(made.z_sup.numpy()),
        "w": rows_of_lists(-made.z_sup.numpy()),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "few.parquet")
    (tmp_path / "queries2").mkdir()
    columns = {"v": rows_of_lists(made.z_qry.numpy()), "url": ["x"] * len(made.z_qry)}
    columns |= {"w": columns["v"], "label": ["y"] * len(made.z_qry), "raw": [b""] * sum(SIZES)}
    pq.write_table(pa.table(columns), tmp_path / "queries2" / "all.parquet", row_group_size=100)
    result = run(
        "solve-shards", "--support", tmp_path / "few.parquet", "--column", "v",
        "--label-column", "name", "--queries", tmp_path / "queries2" / "all.parquet",
        "--keep", "label,url", "--out", tmp_path / "out", "--set", "n_steps=5",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = pq.read_table(tmp_path / "out" / "labels" / "all.parquet")
    assert found.column_names == ["source_label", "url", "label", "confidence", "margin"]
    expected = expect(made, tmp_path)
    assert found["label"].to_pylist() == ["abcdefg"[number] for number in expected["labels"]]


def test_a_pattern_names_the_shards(made, tmp_path):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    solve_shards(made.support, queries / "part[04].parquet", tmp_path / "out", settings=STEPS)
    names = sorted(path.name for path in (tmp_path / "out" / "labels").iterdir())
    assert names == ["part0.parquet", "part4.parquet"]


def test_a_solve_resumes_with_the_decoded_copies(made, tmp_path, monkeypatch):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    out, again = tmp_path / "out", tmp_path / "again"
    solve_shards(made.support, queries, again, settings=STEPS)

    def stop(phase, done, total):
        if phase == "labelling" and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_shards(made.support, queries, out, settings=STEPS, progress=stop)
    assert len(list((out / "decoded").glob("*.npy"))) == 5
    with monkeypatch.context() as changed:  # nothing is decoded a second time
        changed.setattr(parquet_shard.EmbeddingFile, "batches", None)
        resumed = solve_shards(made.support, queries, out, settings=STEPS)
    assert not resumed.was_finished
    assert read_all(out).equals(read_all(again))
    assert not (out / "decoded").exists()
    monkeypatch.setattr(parquet_shard.EmbeddingFile, "batches", None)
    assert solve_shards(made.support, queries, out, settings=STEPS).was_finished


def test_other_columns_are_added_to_a_finished_solve(made, tmp_path):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    solve_shards(made.support, queries, tmp_path / "out", settings=STEPS, keep=[])
    before = read_all(tmp_path / "out")
    assert before.column_names == ["label", "confidence", "margin"]
    summary = solve_shards(made.support, queries, tmp_path / "out", settings=STEPS, keep=["id"])
    after = read_all(tmp_path / "out")
    assert after.column_names == ["id", *before.column_names]
    assert after.select(before.column_names).equals(before)
    assert summary.seconds_per_step is None


def test_damaged_labels_are_written_again(made, tmp_path):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    solve_shards(made.support, queries, tmp_path / "out", settings=STEPS)
    before = read_all(tmp_path / "out")
    labels = tmp_path / "out" / "labels"
    (labels / "part0.parquet").write_bytes(b"PAR1")
    table = pq.read_table(labels / "part3.parquet")
    pq.write_table(table.slice(1), labels / "part3.parquet")
    pq.write_table(table.replace_schema_metadata(None), labels / "part4.parquet")
    summary = solve_shards(made.support, queries, tmp_path / "out", settings=STEPS)
    assert not summary.was_finished
    assert read_all(tmp_path / "out").equals(before)


def test_force_removes_the_labels_of_the_other_solve_only(made, tmp_path):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    out = tmp_path / "out"
    solve_shards(made.support, queries, out, settings=STEPS)
    pq.write_table(pa.table({"mine": [1]}), out / "labels" / "mine.parquet")
    (queries / "part0.parquet").unlink()
    with pytest.raises(DataError, match="belongs to another solve"):
        solve_shards(made.support, queries, out, settings=STEPS)
    solve_shards(made.support, queries, out, settings=STEPS, force=True)
    names = {path.name for path in (out / "labels").iterdir()}
    assert names == {"mine.parquet", *(f"part{number}.parquet" for number in range(1, 5))}


def one(folder, **columns):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / "a.parquet")


def vectors(*rows):
    return pa.array([*rows], pa.list_(pa.float32()))


GOOD = [1.0] * 24
REFUSED = {
    "null": (vectors(GOOD, None), "row 1 of the column 'v' is null"),
    "width": (vectors(GOOD, GOOD[1:]), "row 1 of the column 'v' has 23 numbers, but the first row"),
    "nan": (vectors(GOOD, [*GOOD[1:], float("nan")]), "a.parquet: row 1 has values that are not"),
    "infinite": (vectors([*GOOD[1:], float("inf")]), "a.parquet: row 0 has values that are not"),
    "large": (pa.array([[1e300] * 24]), "a.parquet: row 0 has values that are not finite"),
    "zero": (vectors([0.0] * 24), "a.parquet: row 0 is all zero, which has no direction"),
    "another width": (vectors([1.0, 2.0]), "a.parquet: has 2 features per row, but support"),
    "no floats": (
        pa.array([[1, 2]]),
        r"no column holds lists .* \(columns: v\); if 'v' has the embeddings, convert",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_cannot_be_used_are_named(case, made, tmp_path):
    rows, message = REFUSED[case]
    one(tmp_path / "bad", v=rows)
    with pytest.raises(DataError, match=message) as caught:
        solve_shards(made.support, tmp_path / "bad", tmp_path / "out", settings=STEPS)
    assert "decoded" not in str(caught.value)


def test_widths_that_differ_between_shards_are_refused(made, tmp_path):
    one(tmp_path / "bad", v=vectors(GOOD))
    pq.write_table(pa.table({"v": vectors([1.0, 2.0])}), tmp_path / "bad" / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: has 2 features per row, but a\.parquet has"):
        solve_shards(made.support, tmp_path / "bad", tmp_path / "out")


def test_arguments_that_do_not_fit_are_refused(made, tmp_path):
    one(tmp_path / "q", v=vectors(GOOD), tags=[["a"]])
    for keep, message in (
        (["url"], r"the column 'url' is not there \(columns: v, tags\)"),
        (["tags"], "the column 'tags' cannot be kept with the labels"),
    ):
        with pytest.raises(DataError, match=message):
            solve_shards(made.support, tmp_path / "q", tmp_path / "out", keep=keep)
    with pytest.raises(InvalidArgumentError, match="keep must be a list of names of columns"):
        solve_shards(made.support, tmp_path / "q", tmp_path / "out", keep="url")
    with pytest.raises(
        InvalidArgumentError, match=r"keep must be left out for .* no Parquet shards"
    ):
        solve_shards(made.support, made.queries, tmp_path / "out", keep=["id"])
    with pytest.raises(InvalidArgumentError, match="column must be left out where nothing is Par"):
        solve_shards(made.support, made.queries, tmp_path / "out", column="v")
    with pytest.raises(InvalidArgumentError, match=r"label_column must be left out for .*support"):
        solve_shards(made.support, made.queries, tmp_path / "out", label_column="v")
    assert not (tmp_path / "out").exists()


def test_folders_without_shards_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"the folder has no shards; .* or Parquet with a column"):
        find_shards(tmp_path / "empty")
    with pytest.raises(DataError, match=r"none-\*\.parquet: no shards are there"):
        find_shards(tmp_path / "none-*.parquet")


def test_a_shard_that_changes_is_named(made, tmp_path):
    queries, _ = to_parquet(made, tmp_path / "parquet")

    def change(phase, done, total):
        if phase == "labelling" and not done:
            os.utime(queries / "part0.parquet", (1, 1))

    with pytest.raises(DataError, match=r"part0\.parquet: the file has changed since the solve"):
        solve_shards(made.support, queries, tmp_path / "out", settings=STEPS, progress=change)


def test_a_full_disk_is_noticed_before_anything_is_decoded(made, tmp_path, monkeypatch):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(parquet_shard.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"the decoded embeddings need 0\.0 GB, but 0\.0 GB are"):
        solve_shards(made.support, queries, tmp_path / "out", settings=STEPS)
    assert not list(Path(tmp_path / "out" / "decoded").iterdir())


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs /dev/full")
def test_a_disk_that_becomes_full_is_not_blamed_on_the_shard(made, tmp_path, monkeypatch):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    monkeypatch.setattr(parquet_shard.np.lib.format, "write_array_header_1_0", fill_disk)
    with pytest.raises(DataError, match=r"decoded/\w+\.npy: cannot be written \(No space left"):
        solve_shards(made.support, queries, tmp_path / "out", settings=STEPS)
    assert not list((tmp_path / "out" / "decoded").iterdir())


def fill_disk(*_):
    with Path("/dev/full").open("wb", buffering=0) as full:
        full.write(b"x")


def test_a_shard_that_changes_while_it_is_decoded_leaves_no_copy(made, tmp_path, monkeypatch):
    queries, _ = to_parquet(made, tmp_path / "parquet")
    batches = parquet_shard.EmbeddingFile.batches

    def touch(self):
        yield from batches(self)
        os.utime(self.name, (1, 1))

    monkeypatch.setattr(parquet_shard.EmbeddingFile, "batches", touch)
    with pytest.raises(DataError, match=r"part\d\.parquet: the file has changed since the solve"):
        solve_shards(made.support, queries, tmp_path / "out", settings=STEPS)
    assert not list((tmp_path / "out" / "decoded").iterdir())
