"""Features of images as Parquet, of tar archives too, and labels with their ids."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from infoshot import DataError, InvalidArgumentError
from infoshot.core.embedding_column import open_embeddings
from infoshot.features.api import extract, extract_shards
from infoshot.shards import solve_shards
from tests.encoders import save_conv4
from tests.features.test_extract_shards import shard_facts
from tests.image_folders import make_folders
from tests.images.test_webdataset import write_tar
from tests.labelling.commands import run


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_conv4(tmp_path_factory.mktemp("network") / "checkpoint")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Seven photos of each of two classes."""
    folder = tmp_path_factory.mktemp("photos")
    make_folders(folder, 7, size=(40, 40), splits={"all": ("cat", "dog")})
    return folder / "all"


@pytest.fixture
def tars(photos, tmp_path):
    """The photos in two archives whose samples have the same keys, and a damaged photo."""
    folder = tmp_path / "tars"
    folder.mkdir()
    for name in ("cat", "dog"):
        members = {}
        for number in range(7):
            members[f"{number:04}.png"] = (photos / name / f"{number}.png").read_bytes()
            members[f"{number:04}.json"] = b"{}"
        members["0007.png"] = b"no image"
        write_tar(folder / f"{name}.tar", members)
    return folder


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_parquet_has_the_features_and_paths_of_safetensors(photos, checkpoint, tmp_path, dtype):
    how = {"backbone": checkpoint, "shard_size": 5, "dtype": dtype}
    extract_shards(photos, tmp_path / "a", **how)
    result = run(
        "extract-shards", photos, "--out", tmp_path / "b", "--backbone", checkpoint,
        "--shard-size", 5, "--dtype", dtype, "--format", "parquet",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        f"shard-00000{number}.parquet" for number in range(3)
    ]
    for path in (tmp_path / "a").iterdir():
        other = tmp_path / "b" / f"{path.stem}.parquet"
        with other.open("rb") as source:
            (rows,) = open_embeddings("shard", source).batches()
        assert torch.equal(torch.tensor(rows), load_file(path)["features"])
        table = pq.read_table(other)
        assert table.column_names == ["path", "embedding"]
        assert table["path"].to_pylist() == shard_facts(path)["paths"]
        assert json.loads(table.schema.metadata[b"shard"])["unreadable"] == {}
    assert extract_shards(photos, tmp_path / "b", format="parquet", **how).n_new == 0


def test_samples_of_archives_have_their_keys_and_the_features_of_files(
    photos, tars, checkpoint, tmp_path
):
    how = {"backbone": checkpoint, "shard_size": 6, "dtype": "float32"}
    counts = extract_shards(tars, tmp_path / "out", format="parquet", **how)
    assert (counts.n_images, counts.n_unreadable, counts.n_shards, counts.n_new) == (16, 2, 3, 3)
    table = pq.read_table(tmp_path / "out")
    assert table["id"].to_pylist() == [f"{number:04}" for number in range(7)] * 2
    names = [f"{tars}/{name}.tar:{n:04}.png" for name in ("cat", "dog") for n in range(7)]
    assert table["path"].to_pylist() == names
    extract_shards(photos, tmp_path / "files", **{**how, "shard_size": 100})
    expected = load_file(tmp_path / "files" / "shard-000000.safetensors")["features"]
    assert np.array_equal(np.array(table["embedding"].to_pylist(), np.float32), expected)
    unreadable = pq.read_schema(tmp_path / "out" / "shard-000001.parquet").metadata[b"shard"]
    assert list(json.loads(unreadable)["unreadable"]) == [f"{tars}/cat.tar:0007.png"]
    counts = extract_shards(tars / "dog.tar", tmp_path / "one", **how)
    assert shard_facts(tmp_path / "one" / "shard-000000.safetensors")["ids"][:2] == ["0000", "0001"]
    assert extract_shards(str(tars / "*.tar"), tmp_path / "all", **how).n_images == 16


def test_a_folder_of_images_is_read_as_before_if_archives_lie_beside_them(
    photos, tars, checkpoint, tmp_path
):
    (tars / "0.png").write_bytes((photos / "cat" / "0.png").read_bytes())
    assert extract_shards(tars, tmp_path / "out", backbone=checkpoint).n_images == 1


def test_a_changed_archive_is_noticed(photos, tars, checkpoint, tmp_path):
    how = {"backbone": checkpoint, "shard_size": 100, "format": "parquet"}
    extract_shards(tars, tmp_path / "out", **how)
    members = {f"{n:04}.png": (photos / "dog" / "0.png").read_bytes() for n in range(8)}
    write_tar(tars / "dog.tar", members)
    with pytest.raises(DataError, match=r"shard-000000\.parquet: a shard of other images"):
        extract_shards(tars, tmp_path / "out", **how)
    (tmp_path / "out" / "shard-000000.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"damaged, or not a shard file \(.*\)\. Remove the file"):
        extract_shards(tars, tmp_path / "out", **how)


def test_formats_are_not_mixed_and_unknown_ones_are_refused(photos, checkpoint, tmp_path):
    how = {"backbone": checkpoint, "shard_size": 7}
    extract_shards(photos, tmp_path / "out", **how)
    with pytest.raises(DataError, match=r"shard-000000\.safetensors: not a shard of these images"):
        extract_shards(photos, tmp_path / "out", format="parquet", **how)
    with pytest.raises(InvalidArgumentError, match=r"Unknown format 'csv'\. Known: safetensors, p"):
        extract_shards(photos, tmp_path / "out", format="csv", **how)


def test_from_archives_to_labels_with_ids(photos, tars, checkpoint, tmp_path):
    how = {"backbone": checkpoint, "dtype": "float32"}
    extract("folder", photos, checkpoint=checkpoint, out=tmp_path / "few.safetensors")
    extract_shards(tars, tmp_path / "shards", shard_size=8, format="parquet", **how)
    solve_shards(tmp_path / "few.safetensors", tmp_path / "shards", tmp_path / "run")
    for name, number in (("cat", 0), ("dog", 1)):
        found = pq.read_table(tmp_path / "run" / "labels" / f"shard-00000{number}.parquet")
        assert found.column_names == ["path", "id", "label", "confidence", "margin"]
        assert found["id"].to_pylist() == [f"{n:04}" for n in range(7)]
        assert found["label"].to_pylist() == [name] * 7
