"""``infoshot extract`` and ``extract-shards`` as commands."""

import pytest
import torch

from infoshot.features import read_features
from infoshot.features.api import extract
from tests.encoders import save_conv4
from tests.image_folders import make_folders
from tests.labelling.commands import run


@pytest.fixture
def checkpoint(tmp_path):
    return save_conv4(tmp_path / "checkpoint")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return make_folders(folder, 5, splits={"train": "ab", "test": "cd"})


def test_extract_writes_a_feature_file(root, checkpoint, tmp_path):
    out = tmp_path / "f.safetensors"
    arguments = (
        "extract", "--dataset", "folder", "--root", root, "--checkpoint", checkpoint,
        "--out", out, "--base-mean", "--dtype", "float32", "--cache", tmp_path / "cache",
    )  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert f"10 images of 2 classes, 64 features each: {out}" in result.stdout
    table = read_features(out)
    expected = extract("folder", root, checkpoint=checkpoint, dtype="float32", base_mean=True)
    assert torch.equal(table.features, expected.features)
    assert torch.equal(table.base_mean, expected.base_mean)
    assert table.provenance == expected.provenance
    content = out.read_bytes()
    assert run(*arguments).exit_code == 0
    assert out.read_bytes() == content


def test_extract_shards_writes_a_folder(root, checkpoint, tmp_path):
    out = tmp_path / "shards"
    arguments = (
        "extract-shards", root, "--out", out, "--backbone", checkpoint, "--shard-size", 8
    )  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    expected = "20 images in 3 shards, 3 of them new; 0 images cannot be read"
    assert expected in result.stdout
    assert "3 shards, 0 of them new" in run(*arguments).stdout
    result = run(*arguments[:-1], 30)
    assert result.exit_code == 2
    assert "not a shard of these images with --shard-size 30" in result.stderr


WRONG = [
    ([], "pass --checkpoint FOLDER, or --backbone NAME of an encoder."),
    (["--backbone", "resnet18"], "'resnet18' has no pretrained weights"),
    (["--checkpoint", "nowhere"], "nowhere: this checkpoint folder does not exist"),
    (["--backbone", "efficientnet-lite0", "--split", "val"], "the split 'val'"),
    (["--backbone", "efficientnet-lite0", "--dtype", "int8"], "Unknown dtype 'int8'."),
    (["--backbone", "efficientnet-lite0", "--crop", "9"], "--crop must be a whole number of at l"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_messages_name_options(arguments, message, root, tmp_path):
    result = run(
        "extract", "--dataset", "folder", "--root", root, "--out", tmp_path / "f", *arguments
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert not (tmp_path / "f").exists()
