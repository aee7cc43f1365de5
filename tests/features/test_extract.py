import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import Checkpoint, save_checkpoint
from infoshot.cli.app import app
from infoshot.features import read_features
from infoshot.features.cache import cache_key, cached
from infoshot.features.extract import Extraction, extract_features, feature_table, provenance
from infoshot.images import open_dataset
from infoshot.images.transforms import network_input, resize_and_crop


@pytest.fixture
def root(tmp_path):
    """Two train and two test classes of five images of different sizes."""
    generator = np.random.default_rng(0)
    for split, classes in (("train", "ab"), ("test", "cd")):
        for class_name in classes:
            for number in range(5):
                size = (90 + 7 * number, 100, 3)
                path = tmp_path / "data" / split / class_name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(generator.integers(0, 256, size, dtype=np.uint8)).save(path)
    return tmp_path / "data"


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    backbone = make_backbone("conv4").eval()
    digest = save_checkpoint(tmp_path / "checkpoint", "conv4", backbone.state_dict())
    return Checkpoint("conv4", backbone, digest)


def test_features_are_one_pass_over_the_published_crop(root, checkpoint):
    split = open_dataset("folder", root).split("test")
    features = extract_features(split, checkpoint, Extraction(batch_size=4))
    assert features.shape == (10, 64)
    spec = checkpoint.backbone.input_spec
    for i in (0, 3, 9):
        pixels = resize_and_crop(split.records[i].location.pixels(), 96, 84)
        x = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            expected = checkpoint.backbone(network_input(x, spec.mean, spec.std))
        torch.testing.assert_close(features[i : i + 1], expected, atol=1e-5, rtol=1e-5)


def test_features_do_not_depend_on_their_neighbours(root, checkpoint):
    split = open_dataset("folder", root).split("test")
    whole = extract_features(split, checkpoint, Extraction(batch_size=4))
    part = type(split)("test", split.records[4:7], split.labels[4:7], split.class_names)
    assert torch.equal(extract_features(part, checkpoint, Extraction(batch_size=4)), whole[4:7])


def test_features_do_not_depend_on_the_number_of_cores(root):
    """Every batch has one core, so that also the rounding is the same."""
    checkpoint = Checkpoint("resnet18", make_backbone("resnet18").eval(), "0" * 64)
    split = open_dataset("folder", root).split("test")
    few = type(split)("test", split.records[:3], split.labels[:3], split.class_names)
    made, threads = [], []
    checkpoint.backbone.register_forward_pre_hook(
        lambda *_: threads.append(torch.get_num_threads())
    )
    before = torch.get_num_threads()
    for n_threads in (1, 2, 3):
        torch.set_num_threads(n_threads)
        made.append(
            [extract_features(x, checkpoint, Extraction(batch_size=4)) for x in (split, few)]
        )
        assert torch.get_num_threads() == n_threads
    torch.set_num_threads(before)
    for whole, part in made:
        assert torch.equal(whole, made[0][0])
        assert torch.equal(part, whole[:3])
    assert set(threads) == {1}


def test_network_sees_batches_of_one_size_only(root, checkpoint):
    """Kernels, and so roundings, may be chosen by the size of the batch."""
    seen = []
    hook = checkpoint.backbone.register_forward_pre_hook(lambda _, x: seen.append(len(x[0])))
    extract_features(
        open_dataset("folder", root).split("test"), checkpoint, Extraction(batch_size=4)
    )
    hook.remove()
    assert seen == [4, 4, 4]


def test_progress_counts_real_images(root, checkpoint):
    split, seen = open_dataset("folder", root).split("test"), []
    extract_features(split, checkpoint, Extraction(batch_size=4), on_progress=seen.append)
    assert seen == [4, 4, 2]


def test_broken_image_stops_with_its_name(root, checkpoint):
    (root / "test" / "d" / "2.png").write_bytes(b"")
    split = open_dataset("folder", root).split("test")
    with pytest.raises(DataError, match=r"2\.png: the file is empty"):
        extract_features(split, checkpoint, Extraction(batch_size=2))


def test_everything_the_features_depend_on_changes_the_key(root, checkpoint):
    def key(how=Extraction(), name="folder", of=checkpoint):  # noqa: B008
        return cache_key(provenance(name, open_dataset("folder", root).split("test"), of, how))

    first = key()
    assert key() == first
    assert key(Extraction(batch_size=7)) == first
    assert key(Extraction(crop=80)) != first
    assert key(Extraction(resize=100)) != first
    assert key(name="cub") != first
    assert key(of=Checkpoint("conv4", checkpoint.backbone, "0" * 64)) != first
    path = root / "test" / "c" / "0.png"
    Image.fromarray(np.zeros((90, 100, 3), dtype=np.uint8)).save(path)
    assert key() != first


def test_cache_is_used_noticed_when_damaged_and_never_half_written(root, checkpoint, tmp_path):
    split = open_dataset("folder", root).split("test")
    about = provenance("folder", split, checkpoint, Extraction())
    made = []

    def make():
        made.append(1)
        features = extract_features(split, checkpoint, Extraction())
        return feature_table(split, features, about)

    cache = tmp_path / "cache"
    first, second = cached(cache, about, make), cached(cache, about, make)
    assert len(made) == 1
    assert torch.equal(first.features, second.features)
    assert second.class_names == ("c", "d")
    [path] = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    third = cached(cache, about, make)
    assert len(made) == 2
    assert torch.equal(third.features, first.features)
    assert [file.name for file in cache.iterdir()] == [path.name]
    assert torch.equal(read_features(path).features, first.features)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Extraction(crop=200), "crop must be at most resize; got 200 and 96"),
        (Extraction(crop=0), "crop must be a whole number of at least 16; got 0"),
        (Extraction(resize=100_000), "resize must be at most 4096; got 100000"),
        (Extraction(batch_size=0), "batch_size must be a whole number of at least 1"),
        (Extraction(device="tpu"), "device 'tpu' is not available"),
    ],
)
def test_bad_extractions_are_named(how, message, checkpoint):
    with pytest.raises(InvalidArgumentError, match=message):
        how.sizes(checkpoint)


def run(*arguments):
    return CliRunner().invoke(app, ["extract", *map(str, arguments)])


def test_command_writes_a_feature_file(root, checkpoint, tmp_path):
    out = tmp_path / "f.safetensors"
    arguments = (
        "--dataset", "folder", "--root", root, "--checkpoint", tmp_path / "checkpoint",
        "--out", out, "--base-mean", "--dtype", "float32", "--cache", tmp_path / "cache",
    )  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "10 images of 2 classes, 64 features each" in result.output
    table = read_features(out)
    assert table.class_names == ("c", "d")
    assert table.labels.tolist() == [0] * 5 + [1] * 5
    assert table.provenance["weights_sha256"] == checkpoint.digest
    train = extract_features(open_dataset("folder", root).split("train"), checkpoint, Extraction())
    torch.testing.assert_close(table.base_mean, train.mean(0))
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert run(*arguments).exit_code == 0
    assert torch.equal(read_features(out).features, table.features)


def test_pretrained_backbone_needs_no_checkpoint(root, tmp_path):
    out = tmp_path / "f.safetensors"
    result = run(
        "--dataset", "folder", "--root", root, "--backbone", "efficientnet-lite0", "--out", out
    )
    assert result.exit_code == 0, result.output
    table = read_features(out)
    assert table.features.shape == (10, 1280)
    assert table.features.dtype == torch.float16
    assert table.provenance["transform"] == "resize 256, crop 224, bilinear"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --checkpoint with a folder, or --backbone"),
        (["--backbone", "resnet18"], "Unknown pretrained backbone 'resnet18'."),
        (["--checkpoint", "nowhere"], "nowhere: there is no such folder"),
        (["--backbone", "efficientnet-lite0", "--split", "val"], "no images of the split 'val'"),
        (["--backbone", "efficientnet-lite0", "--dtype", "int8"], "Unknown dtype 'int8'."),
    ],
)
def test_bad_input_gets_one_sentence(arguments, message, root, tmp_path):
    result = run("--dataset", "folder", "--root", root, "--out", tmp_path / "f", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert not (tmp_path / "f").exists()


def test_two_commands_may_fill_one_cache_at_once(root, checkpoint, tmp_path):
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "infoshot", "extract", "--dataset", "folder", "--root", root,
             "--checkpoint", tmp_path / "checkpoint", "--cache", tmp_path / "cache",
             "--out", tmp_path / name, "--device", "cpu"],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    for command in commands:
        _, errors = command.communicate(timeout=120)
        assert command.returncode == 0, errors
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    [kept] = (tmp_path / "cache").iterdir()
    assert len(read_features(kept).features) == 10


def test_features_that_are_no_numbers_are_refused(root, checkpoint, tmp_path):
    weights = checkpoint.backbone.state_dict()
    common = ("--dataset", "folder", "--root", root, "--out", tmp_path / "f",
              "--checkpoint", tmp_path / "bad", "--device", "cpu")  # fmt: skip
    weights["blocks.3.1.weight"] *= 1e7
    save_checkpoint(tmp_path / "bad", "conv4", weights)
    result = run(*common)
    assert result.exit_code == 2
    assert "too large for float16; --dtype float32 holds them" in result.stderr
    weights["blocks.3.1.running_var"] *= float("nan")
    save_checkpoint(tmp_path / "bad", "conv4", weights)
    result = run(*common)
    assert result.exit_code == 2
    assert "weights of this conv4 give features that are not finite" in result.stderr
    assert not (tmp_path / "f").exists()
