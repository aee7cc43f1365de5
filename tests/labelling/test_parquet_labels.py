"""Labels of a Parquet table go out as Parquet, with the other columns of its rows."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from infoshot import label_table
from infoshot.cli.app import app
from tests.parquet_files import WRITERS

OWN = ["row", "label", "confidence", "runner_up", "margin", "outlier_score"]


@pytest.fixture
def rows():
    """60 rows of three classes, the first three of each class labelled, and their true names."""
    random = np.random.default_rng(0)
    truth = np.arange(60) % 3
    z = np.eye(3, 8)[truth] + 0.2 * random.standard_normal((60, 8))
    names = np.array(["ant", "bee", "cat"])[truth]
    return z.astype(np.float32), [name if i < 9 else None for i, name in enumerate(names)], names


@pytest.mark.parametrize("writer", ["pyarrow, lists", "polars, Array", "datasets"])
def test_ids_are_returned_with_the_labels(writer, rows, tmp_path):
    z, labels, truth = rows
    ids = [f"photo/{number}.jpg" for number in range(60)]
    others = {"path": ids, "label": labels, "row": [100 + number for number in range(60)]}
    WRITERS[writer](tmp_path / "mine.parquet", z, others)
    result = label_table(tmp_path / "mine.parquet")
    (tmp_path / "out.parquet").write_bytes(result.to_parquet())
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["path", "source_row", *OWN]
    assert found["path"].to_pylist() == ids[9:]
    assert found["source_row"].to_pylist() == list(range(109, 160))
    assert found["row"].to_pylist() == list(range(9, 60))
    assert found["label"].to_pylist() == truth[9:].tolist()
    best, second = result.probabilities.double().topk(2).values.T
    np.testing.assert_array_equal(found["confidence"].to_numpy(), best)
    np.testing.assert_allclose(found["margin"].to_numpy(), best - second, rtol=1e-12)
    assert str(found.schema.field("path").type) == "string"


def test_the_command_writes_by_the_suffix_and_says_the_same_in_both(rows, tmp_path, monkeypatch):
    z, labels, truth = rows
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        some = slice(30 * number, 30 * number + 30)
        others = {"id": list(range(60))[some], "truth": truth[some], "given": labels[some]}
        WRITERS["pyarrow, fixed"](tmp_path / f"part{number}.parquet", z[some], others)
    given = ["--features", "part*.parquet", "--column", "embedding", "--label-column", "given"]
    assert run("solve", *given, "--out", "labels.csv", "--json", "a.json").exit_code == 0
    assert run("solve", *given, "--out", "labels.parquet", "--json", "b.json").exit_code == 0
    found = pq.read_table("labels.parquet").to_pydict()
    lines = list(csv.DictReader(Path("labels.csv").read_text().splitlines()))
    assert list(lines[0]) == OWN
    assert [line["label"] for line in lines] == found["label"] == found["truth"]
    assert [int(line["row"]) for line in lines] == found["row"] == found["id"]
    assert Path("a.json").read_text() == Path("b.json").read_text()


def test_a_table_in_memory_has_no_other_columns(rows, tmp_path):
    z, labels, _ = rows
    WRITERS["polars, List"](tmp_path / "mine.parquet", z, {"label": labels})
    (tmp_path / "out.parquet").write_bytes(label_table(tmp_path / "mine.parquet").to_parquet())
    assert pq.read_table(tmp_path / "out.parquet").column_names == OWN


def test_bench_reads_a_folder(rows, tmp_path, monkeypatch):
    z, _, truth = rows
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    WRITERS["pyarrow, float16"](tmp_path / "parts" / "a.parquet", z, {"kind": truth})
    how = ["--ways", "3", "--shots", "1", "--queries", "5", "--tasks", "5", "--json", "rows.json"]
    how += ["--methods", "prototype", "--label-column", "kind"]
    assert run("bench", "--features", "parts", *how).exit_code == 0
    (row,) = json.loads(Path("rows.json").read_text())
    assert row["features"] == "parts"
    assert row["mean"] > 95


def test_a_wrong_column_is_one_sentence_that_names_the_option(rows, tmp_path):
    z, labels, _ = rows
    WRITERS["pyarrow, lists"](tmp_path / "a.parquet", z, {"id": list(range(60)), "tag": labels})
    given = ["--features", str(tmp_path / "a.parquet"), "--out", str(tmp_path / "out.csv")]
    refused = run("solve", *given)
    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        "a.parquet: the column 'label' of the labels is missing (columns: id, tag, embedding); "
        "pass --label-column NAME, null or -1 marks unlabelled rows.\n"
    )


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
