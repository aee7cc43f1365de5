"""Shards of features: the same files from one process or two, and none computed twice."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import open_encoder
from infoshot.core.tensor_file import write_tensor_file
from infoshot.features.api import extract, extract_shards
from infoshot.features.extract import Extraction, encode_images
from infoshot.images.folders import find_images
from tests.encoders import save_conv4
from tests.image_folders import make_folders


@pytest.fixture
def checkpoint(tmp_path):
    return save_conv4(tmp_path / "checkpoint")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Folders with 20 photos of each of three classes; the names start with the class."""
    folder = tmp_path_factory.mktemp("photos")
    make_folders(folder, 20, size=(40, 40), splits={"all": ("cat", "dog", "eel")})
    return folder / "all"


@pytest.fixture
def images(photos, tmp_path):
    """A list of 23 photos and two files that are not images."""
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("no image")
    names = sorted(map(str, photos.glob("*/*.png")))[:23]
    names[3:3], names[9:9] = [str(tmp_path / "empty.png")], [str(tmp_path / "text.jpg")]
    (tmp_path / "images.txt").write_text("\n".join(names))
    return tmp_path / "images.txt"


def shard_facts(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["shard"])


def test_rows_are_the_features_of_their_paths(images, checkpoint, tmp_path):
    counts = extract_shards(
        images, tmp_path / "out", backbone=checkpoint, shard_size=10, dtype="float32"
    )
    assert (counts.n_images, counts.n_unreadable, counts.n_shards, counts.n_new) == (25, 2, 3, 3)
    files = find_images(images)
    locations = [file.location for file in files]
    expected = encode_images(locations, lambda: open_encoder(checkpoint), Extraction())
    shards = sorted((tmp_path / "out").iterdir())
    assert [shard.name for shard in shards] == [f"shard-00000{i}.safetensors" for i in range(3)]
    paths = [path for shard in shards for path in shard_facts(shard)["paths"]]
    rows = [load_file(shard)["features"] for shard in shards]
    assert [len(some) for some in rows] == [8, 10, 5]
    place = {file.path: number for number, file in enumerate(files)}
    assert torch.equal(torch.cat(rows), expected.features[[place[path] for path in paths]])
    reasons = shard_facts(shards[0])["unreadable"]
    assert list(reasons.values()) == [
        "the file is empty", "not an image, or in a format that is not supported",
    ]  # fmt: skip


def test_finished_shards_are_not_computed_again(images, checkpoint, tmp_path):
    out, seen = tmp_path / "out", []
    extract_shards(images, out, backbone=checkpoint, shard_size=10)
    (out / "shard-000001.safetensors").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    counts = extract_shards(
        images, out, backbone=checkpoint, shard_size=10, progress=lambda *e: seen.append(e)
    )
    assert (counts.n_shards, counts.n_new, counts.n_unreadable) == (3, 1, 2)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert seen[0] == ("extracting", 0, 25)
    assert seen[-1] == ("extracting", 25, 25)


SHARE = """
import sys
from infoshot.features.api import extract_shards

images, out, checkpoint = sys.argv[1:]
extract_shards(images, out, backbone=checkpoint, shard_size=10, device="cpu")
"""


def test_two_processes_write_the_same_files(images, checkpoint, tmp_path):
    extract_shards(images, tmp_path / "one", backbone=checkpoint, shard_size=10)
    (tmp_path / "share.py").write_text(SHARE)
    arguments = (tmp_path / "share.py", images, tmp_path / "two", checkpoint)
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         *map(str, arguments)],
        check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=120,
    )  # fmt: skip
    assert len(list((tmp_path / "two").iterdir())) == 3
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_other_images_sizes_and_encoders_are_refused(images, photos, checkpoint, tmp_path):
    out = tmp_path / "out"
    extract_shards(images, out, backbone=checkpoint, shard_size=10)
    other = r"shard-000000\.safetensors: a shard of other images, of another size or encoder"
    with pytest.raises(DataError, match=other):
        extract_shards(images, out, backbone=checkpoint, shard_size=9)
    with pytest.raises(DataError, match=other):
        extract_shards(images, out, backbone=checkpoint, shard_size=10, dtype="float32")
    with pytest.raises(DataError, match=other):
        extract_shards(photos, out, backbone=checkpoint, shard_size=10)
    with pytest.raises(DataError, match="not a shard of these images with shard_size=30"):
        extract_shards(images, out, backbone=checkpoint, shard_size=30)
    (out / "shard-000000.safetensors").write_bytes(b"x" * 40)
    with pytest.raises(DataError, match=r"damaged, or not a shard file .* Remove the file"):
        extract_shards(images, out, backbone=checkpoint, shard_size=10)


def test_wrong_arguments_are_refused(images, checkpoint, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InvalidArgumentError, match="Unknown dtype 'int8'"):
        extract_shards(images, out, backbone=checkpoint, dtype="int8")
    with pytest.raises(InvalidArgumentError, match="shard_size must be a whole number of at least"):
        extract_shards(images, out, backbone=checkpoint, shard_size=0)


def test_labels_of_shards_are_mostly_correct(photos, checkpoint, tmp_path):
    """From photos to labels: shards of photos, features of examples, one solve."""
    from infoshot.shards import solve_shards

    extract_shards(photos, tmp_path / "shards", backbone=checkpoint, shard_size=10)
    for name in ("cat", "dog", "eel"):
        folder = tmp_path / "examples" / name
        folder.mkdir(parents=True)
        for number in range(7):
            os.link(photos / name / f"{number}.png", folder / f"{number}.png")
    support = tmp_path / "support.safetensors"
    table = extract("folder", tmp_path / "examples", checkpoint=checkpoint, out=support)
    solve_shards(support, tmp_path / "shards", tmp_path / "run", method="tim-auto")
    correct = []
    for path in sorted((tmp_path / "shards").iterdir()):
        labels = load_file(tmp_path / "run" / "labels" / path.name)["labels"].tolist()
        for name, label in zip(shard_facts(path)["paths"], labels, strict=True):
            correct.append(name.split("/")[-2] == table.class_names[label])
    assert len(correct) == 60
    assert np.mean(correct) > 0.5


def test_shards_that_do_not_say_what_they_hold_are_named(images, checkpoint, tmp_path):
    out = tmp_path / "out"
    extract_shards(images, out, backbone=checkpoint, shard_size=10)
    path = out / "shard-000001.safetensors"
    facts = shard_facts(path)
    for unreadable in (None, 3, ["a"]):
        facts = {**facts, "unreadable": unreadable}
        write_tensor_file(path, {"features": torch.ones(8, 3)}, facts, kind="shard")
        with pytest.raises(DataError, match=r"shard-000001.safetensors: a shard of other images"):
            extract_shards(images, out, backbone=checkpoint, shard_size=10)
