"""Shards of features from images: the same files by one process or two, and none made twice."""

import json
import os
import subprocess
import sys

import pytest
import torch
from infoshot.features.encode import digest_files, encode_files
from safetensors import safe_open
from safetensors.torch import load_file

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import open_checkpoint, save_checkpoint
from infoshot.features import read_features
from infoshot.features.extract import Extraction
from infoshot.images.folders import find_photos
from infoshot.shards import find_shards
from tests.labelling.commands import run


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, "conv4", make_backbone("conv4").eval().state_dict())
    return folder


@pytest.fixture
def pile(made, tmp_path):
    """The photos of the other tests as a list, and two files that are no images."""
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("no image")
    names = sorted(map(str, (made / "photos").glob("*.png")))[:23]
    names[3:3], names[9:9] = [str(tmp_path / "empty.png")], [str(tmp_path / "text.jpg")]
    (tmp_path / "pile.txt").write_text("\n".join(names))
    return tmp_path / "pile.txt"


def extract(pile, out, checkpoint, *more):
    arguments = (pile, "--out", out, "--backbone", checkpoint, "--shard-size", 10)
    return run("extract-shards", *arguments, *more)


def shard_facts(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["shard"])


class NoStore:
    """Keeps nothing."""

    def read(self, digests):
        return {}

    def add(self, digests, features):
        pass

    def tidy(self):
        pass


def test_rows_are_the_features_of_their_paths(pile, checkpoint, tmp_path):
    result = extract(pile, tmp_path / "out", checkpoint, "--dtype", "float32")
    assert result.exit_code == 0, result.output
    assert "25 images in 3 shards, 3 of them made now; 2 images could not be read" in result.stdout
    files = find_photos(pile)
    expected = encode_files(
        files,
        digest_files(files, 1),
        lambda: open_checkpoint(checkpoint, None),
        Extraction(),
        NoStore(),
    )
    shards = find_shards(tmp_path / "out")
    assert [shard.n_rows for shard in shards] == [8, 10, 5]
    paths = [path for shard in shards for path in shard_facts(shard.path)["paths"]]
    place = {found.path: number for number, found in enumerate(files)}
    rows = torch.cat([shard.rows() for shard in shards])
    torch.testing.assert_close(rows, expected.features[[place[path] for path in paths]])
    reasons = shard_facts(shards[0].path)["unreadable"]
    assert len(reasons) == 2
    assert "empty" in "".join(reasons.values())


def test_finished_shards_are_not_made_again(pile, checkpoint, tmp_path):
    out = tmp_path / "out"
    assert extract(pile, out, checkpoint).exit_code == 0
    (out / "shard-000001.safetensors").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert "3 shards, 1 of them made now" in extract(pile, out, checkpoint).stdout
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_two_processes_write_the_same_files(pile, checkpoint, tmp_path):
    assert extract(pile, tmp_path / "one", checkpoint).exit_code == 0
    arguments = ["extract-shards", pile, "--out", tmp_path / "two", "--backbone", checkpoint]
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "infoshot", *map(str, arguments), "--shard-size", "10"],
        check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=120,
    )  # fmt: skip
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_other_piles_and_sizes_are_refused(pile, checkpoint, tmp_path):
    out = tmp_path / "out"
    assert extract(pile, out, checkpoint).exit_code == 0
    result = run("extract-shards", pile, "--out", out, "--backbone", checkpoint, "--shard-size", 9)
    assert result.exit_code == 2
    assert "is a shard of another pile, size or encoder" in result.stderr
    result = run("extract-shards", pile, "--out", out, "--backbone", checkpoint, "--shard-size", 30)
    assert "is no shard of this pile cut by 30 images" in result.stderr
    (out / "shard-000000.safetensors").write_bytes(b"x" * 40)
    assert "damaged, or no shard" in extract(pile, out, checkpoint).stderr


def test_from_photos_to_labels(made, checkpoint, tmp_path):
    """The whole way for large piles: shards of photos, features of examples, labels."""
    assert extract(made / "photos", tmp_path / "shards", checkpoint).exit_code == 0
    result = run(
        "extract", "--dataset", "folder", "--root", made / "examples", "--split", "test",
        "--checkpoint", checkpoint, "--out", tmp_path / "support.safetensors",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    result = run(
        "solve-shards", "--support", tmp_path / "support.safetensors",
        "--queries", tmp_path / "shards", "--out", tmp_path / "run", "--method", "tim-auto",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    names = read_features(tmp_path / "support.safetensors").class_names
    right = []
    for path in sorted((tmp_path / "shards").iterdir()):
        labels = load_file(tmp_path / "run" / "labels" / path.name)["labels"].tolist()
        for name, label in zip(shard_facts(path)["paths"], labels, strict=True):
            right.append(name.rpartition("/")[2].startswith(names[label]))
    assert sum(right) > 0.5 * len(right)
