"""Parquet in a remote file system, here that of fsspec in memory."""

import io

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from infoshot import DataError, InvalidArgumentError, read_features
from infoshot.features import digest
from infoshot.features.api import extract_shards
from infoshot.shards import solve_shards
from tests.labelling.commands import run
from tests.parquet_files import rows_of_fixed_lists
from tests.shards.made_shards import make_shards

STEPS = {"n_steps": 5}


@pytest.fixture
def bucket():
    yield "memory://bucket"
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


@pytest.fixture
def made(tmp_path, bucket):
    """The queries as two remote shards, and the support as one, here and there."""
    made = make_shards(tmp_path)
    z = made.z_qry.numpy()
    (tmp_path / "here").mkdir()
    for number, some in enumerate((slice(0, 1000), slice(1000, None))):
        ids = [f"photo {row}" for row in range(len(z))[some]]
        columns = {"id": ids, "v": rows_of_fixed_lists(z[some])}
        put(bucket, tmp_path / "here", f"part{number}.parquet", columns)
    names = ["abcdefg"[number] for number in made.y_sup]
    columns = {
        "label": [*names, None],
        "v": rows_of_fixed_lists(made.z_sup.numpy()[[*range(21), 0]]),
    }
    put(f"{bucket}/few", tmp_path, "few.parquet", columns)
    return made


def put(bucket, here, name, columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    fsspec.filesystem("memory").pipe_file(f"{bucket}/{name}", sink.getvalue())
    (here / name).write_bytes(sink.getvalue())


def test_tables_are_those_of_local_files(made, bucket, tmp_path):
    path = f"{bucket}/few/few.parquet"
    here, there = read_features(tmp_path / "few.parquet"), read_features(path)
    assert torch.equal(here.features, there.features)
    assert torch.equal(here.labels, there.labels)
    assert digest(path) == digest(tmp_path / "few.parquet")
    assert torch.equal(read_features(f"{bucket}/few").features, there.features)
    assert torch.equal(read_features(f"{bucket}/f*/*.parquet").features, there.features)


def test_remote_shards_are_solved_like_local_ones(made, bucket, tmp_path):
    solve_shards(tmp_path / "few.parquet", tmp_path / "here", tmp_path / "a", settings=STEPS)
    result = run(
        "solve-shards", "--support", f"{bucket}/few/few.parquet", "--queries", bucket,
        "--out", tmp_path / "b", "--set", "n_steps=5",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    for name in ("part0.parquet", "part1.parquet"):
        here, there = (pq.read_table(tmp_path / run / "labels" / name) for run in "ab")
        assert here.column_names == ["id", "label", "confidence", "margin"]
        assert here.equals(there)
    assert solve_shards(
        f"{bucket}/few", f"{bucket}/part*.parquet", tmp_path / "b", settings=STEPS, force=True
    ).n_shards == 2  # fmt: skip


def test_a_remote_shard_that_changes_is_named(made, bucket, tmp_path):
    def change(phase, done, total):
        if phase == "labelling" and not done:
            content = (tmp_path / "here" / "part0.parquet").read_bytes()
            fsspec.filesystem("memory").pipe_file(f"{bucket}/part0.parquet", content)

    with pytest.raises(DataError, match=r"part0\.parquet: the file has changed since the solve"):
        solve_shards(made.support, bucket, tmp_path / "out", settings=STEPS, progress=change)


def test_the_commands_read_and_write_there(made, bucket, tmp_path):
    given = ("solve", "--features", f"{bucket}/few", "--method", "prototype", "--out")
    for name in ("labels.parquet", "labels.csv"):
        result = run(*given, f"{bucket}/{name}")
        assert result.exit_code == 0, result.stderr
        result = run(*given, tmp_path / name)
        content = fsspec.filesystem("memory").cat_file(f"/bucket/{name}")
        assert content == (tmp_path / name).read_bytes()
    refused = run(*given, f"{bucket}/few/few.parquet")
    assert refused.exit_code == 2
    assert refused.stderr.endswith("few.parquet: would replace an input.\n")
    how = ("--ways", 3, "--shots", 1, "--queries", 2, "--tasks", 3, "--methods", "prototype")
    result = run("bench", "--features", f"{bucket}/few/few.parquet", *how)
    assert result.exit_code == 0, result.stderr
    assert "few.parquet" in result.stdout


def test_what_is_not_there_or_not_parquet_is_refused(bucket, tmp_path):
    fsspec.filesystem("memory").pipe_file("/bucket/a.npz", b"PK\3\4")
    with pytest.raises(DataError, match=r"a\.npz: not a Parquet file; remote feature files must"):
        read_features(f"{bucket}/a.npz")
    with pytest.raises(DataError, match=r"memory://bucket: no Parquet file is there\."):
        read_features(bucket)
    with pytest.raises(DataError, match=r"none\.parquet: there is no such file\."):
        read_features(f"{bucket}/none.parquet")
    fsspec.filesystem("memory").pipe_file("/bucket/a.npy", b"")
    support = make_shards(tmp_path).support
    with pytest.raises(InvalidArgumentError, match="queries must be Parquet files if they are rem"):
        solve_shards(support, bucket, tmp_path / "out")
    with pytest.raises(InvalidArgumentError, match="out must be a path of this machine"):
        solve_shards(support, bucket, f"{bucket}/out")
    with pytest.raises(InvalidArgumentError, match="images must be a path of this machine"):
        extract_shards(f"{bucket}/a.tar", tmp_path / "out")
