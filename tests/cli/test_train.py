import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.cli.app import app
from infoshot.features import read_features
from tests.image_folders import make_folders


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def train(root, out, *more):
    settings = {"dataset": "folder", "root": root, "backbone": "conv4", "out": out, "epochs": 1,
                "batch-size": 8, "lr": 0.02, "device": "cpu"}  # fmt: skip
    options = [text for name, value in settings.items() for text in (f"--{name}", value)]
    return run("train", *options, *more)


@pytest.fixture
def root(tmp_path):
    return make_folders(tmp_path / "data", 5)


def test_from_images_to_features(root, tmp_path):
    result = train(root, tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "Best of 1 epochs: 1, validation accuracy" in result.stdout
    assert "epoch 1/1: loss" in result.stderr
    result = run("extract", "--dataset", "folder", "--root", root, "--checkpoint",
                 tmp_path / "run" / "best", "--out", tmp_path / "f.safetensors")  # fmt: skip
    assert result.exit_code == 0, result.output
    table = read_features(tmp_path / "f.safetensors")
    assert table.features.shape == (15, 64)
    digest = load_checkpoint(tmp_path / "run" / "best").digest
    assert table.provenance["weights_sha256"] == digest


def test_the_run_is_no_checkpoint_but_says_where_they_are(root, tmp_path):
    train(root, tmp_path / "run")
    result = run("extract", "--dataset", "folder", "--root", root, "--checkpoint",
                 tmp_path / "run", "--out", tmp_path / "f")  # fmt: skip
    assert result.exit_code == 2
    assert f"Did you mean {tmp_path / 'run' / 'best'} or " in result.stderr


def test_same_command_again_goes_on_or_says_that_all_is_done(root, tmp_path):
    train(root, tmp_path / "run")
    result = train(root, tmp_path / "run")
    assert result.exit_code == 0
    assert "All 1 epochs were done already" in result.stderr
    result = train(root, tmp_path / "run", "--seed", "7")
    assert result.exit_code == 2
    assert "holds another training (seed 0 there, 7 here)" in result.stderr


def test_odd_images_are_learned_from(root, tmp_path):
    pixels = Image.new("RGB", (1, 1))
    pixels.save(root / "train" / "a" / "pixel.png")
    for mode in ("CMYK", "L"):
        pixels.resize((50, 90)).convert(mode).save(root / "train" / "b" / f"{mode}.jpg")
    for mode in ("RGBA", "P", "I;16"):
        Image.new(mode, (90, 50)).save(root / "train" / "c" / f"{mode.replace(';', '')}.png")
    (root / "train" / "d" / "really.png").write_bytes((root / "train" / "b" / "L.jpg").read_bytes())
    result = train(root, tmp_path / "run")
    assert result.exit_code == 0, result.output


def test_broken_image_stops_unless_told_to_go_on(root, tmp_path):
    (root / "train" / "a" / "2.png").write_bytes(b"")
    whole = (root / "val" / "e" / "1.png").read_bytes()
    (root / "val" / "e" / "1.png").write_bytes(whole[: len(whole) // 2])
    result = train(root, tmp_path / "run")
    assert result.exit_code == 2
    assert "2.png: the file is empty." in result.stderr
    assert not (tmp_path / "run" / "last").exists()
    result = train(root, tmp_path / "run", "--skip-broken")
    assert result.exit_code == 0, result.output
    assert "1 images of 'train' are left out" in result.stderr
    assert "2.png: the file is empty." in result.stderr
    assert "1.png: cannot be decoded" in result.stderr
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1])["epoch"] == 1


def test_extraction_leaves_out_broken_images_when_told(root, tmp_path):
    train(root, tmp_path / "run")
    (root / "test" / "h" / "0.png").write_bytes(b"no image")
    arguments = ("extract", "--dataset", "folder", "--root", root, "--checkpoint",
                 tmp_path / "run" / "best", "--out", tmp_path / "f")  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 2
    assert "0.png: not an image" in result.stderr
    assert not (tmp_path / "f").exists()
    result = run(*arguments, "--skip-broken")
    assert result.exit_code == 0
    assert "0.png: not an image" in result.stderr
    assert read_features(tmp_path / "f").labels.tolist() == [0] * 4 + [1] * 5 + [2] * 5


def test_classes_that_are_gone_are_named(root, tmp_path):
    for path in (root / "train" / "b").iterdir():
        path.write_bytes(b"")
    result = train(root, tmp_path / "run", "--skip-broken")
    assert result.exit_code == 0
    assert "no image is left of these classes of 'train': b." in result.stderr
    assert load_checkpoint(tmp_path / "run" / "last").class_names == ("a", "c", "d")


def test_run_is_not_written_among_the_images(root):
    result = train(root, root)
    assert result.exit_code == 2
    assert "--out must be another folder than --root" in result.stderr


def _empty(root):
    for path in root.rglob("*.png"):
        path.unlink()


def _one_class(root):
    for name in "bcd":
        (root / "train" / name).rename(root / "test" / name)


def _no_train(root):
    (root / "train").rename(root.parent / "elsewhere")


def _all_broken(root):
    for path in (root / "train").rglob("*.png"):
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_empty, "no images found; folder may be class folders"),
        (_one_class, "at least 2 classes in the split 'train'; got 1 (a)."),
        (_no_train, "there are no images of the split 'train' to learn from"),
        (_all_broken, "no image of the split 'train' decodes;"),
    ],
)
def test_data_that_cannot_be_learned_from_gets_one_sentence(spoil, message, root, tmp_path):
    spoil(root)
    result = train(root, tmp_path / "run", "--skip-broken")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert not (tmp_path / "run" / "last").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backbone", "resnet19"], "Unknown backbone 'resnet19'. Did you mean 'resnet1"),
        (["--epochs", "0"], "epochs must be a whole number of at least 1; got 0"),
        (["--lr", "0"], "learning_rate must be a finite number above 0; got 0"),
        (["--device", "tpu"], "device 'tpu' is not available"),
    ],
)
def test_bad_options_get_one_sentence(arguments, message, root, tmp_path):
    result = train(root, tmp_path / "run", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr


def test_folder_of_the_run_must_be_one(root, tmp_path):
    (tmp_path / "file").write_text("")
    result = train(root, tmp_path / "file")
    assert result.exit_code == 2
    assert "file: cannot be made a folder (File exists)." in result.stderr
