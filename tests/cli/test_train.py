import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.cli.app import app
from infoshot.features import read_features
from infoshot.training import TrainConfig
from infoshot.training.config_file import SETTINGS
from tests.image_folders import make_folders

WARNINGS = pytest.mark.filterwarnings("always::UserWarning")  # the command prints them


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


def test_run_folder_as_checkpoint_is_its_best_epoch(root, tmp_path):
    train(root, tmp_path / "run", "--epochs", "2")
    result = run("extract", "--dataset", "folder", "--root", root, "--checkpoint",
                 tmp_path / "run", "--out", tmp_path / "f")  # fmt: skip
    assert result.exit_code == 0, result.output
    provenance = read_features(tmp_path / "f").provenance
    best = load_checkpoint(tmp_path / "run" / "best")
    assert provenance["weights_sha256"] == best.digest
    assert (provenance["checkpoint"], provenance["epoch"]) == ("best", str(best.epoch))
    assert provenance["trained_on"] == "folder"


def test_same_command_finds_the_finished_run(root, tmp_path):
    train(root, tmp_path / "run")
    result = train(root, tmp_path / "run")
    assert result.exit_code == 0
    assert "are already done." in result.stderr
    result = train(root, tmp_path / "run", "--seed", "7")
    assert result.exit_code == 2
    assert "holds a different training run (seed 0 there, 7 here)" in result.stderr


def test_unusual_images_are_accepted(root, tmp_path):
    pixels = Image.new("RGB", (1, 1))
    pixels.save(root / "train" / "a" / "pixel.png")
    for mode in ("CMYK", "L"):
        pixels.resize((50, 90)).convert(mode).save(root / "train" / "b" / f"{mode}.jpg")
    for mode in ("RGBA", "P", "I;16"):
        Image.new(mode, (90, 50)).save(root / "train" / "c" / f"{mode.replace(';', '')}.png")
    (root / "train" / "d" / "really.png").write_bytes((root / "train" / "b" / "L.jpg").read_bytes())
    result = train(root, tmp_path / "run")
    assert result.exit_code == 0, result.output


@WARNINGS
def test_broken_image_stops_unless_skipped(root, tmp_path):
    (root / "train" / "a" / "2.png").write_bytes(b"")
    whole = (root / "val" / "e" / "1.png").read_bytes()
    (root / "val" / "e" / "1.png").write_bytes(whole[: len(whole) // 2])
    result = train(root, tmp_path / "run")
    assert result.exit_code == 2
    assert "2.png: the file is empty." in result.stderr
    assert not (tmp_path / "run" / "last").exists()
    result = train(root, tmp_path / "run", "--skip-broken")
    assert result.exit_code == 0, result.output
    assert "skipped 1 of 20 images of the split 'train': " in result.stderr
    assert "2.png: the file is empty." in result.stderr
    assert "1.png: cannot be decoded" in result.stderr
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1])["epoch"] == 1


def test_extraction_skips_broken_images_if_asked(root, tmp_path):
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


@WARNINGS
def test_classes_without_images_are_named(root, tmp_path):
    for path in (root / "train" / "b").iterdir():
        path.write_bytes(b"")
    result = train(root, tmp_path / "run", "--skip-broken")
    assert result.exit_code == 0
    assert "these classes of the split 'train' have no image left: b." in result.stderr
    assert load_checkpoint(tmp_path / "run" / "last").class_names == ("a", "c", "d")


def test_set_overrides_options_and_these_the_file(root, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text("epochs = 9\nlearning_rate = 0.9\nmomentum = 0.5\nval_tasks = 7\n")
    result = train(root, tmp_path / "run", "--config", path, "--set", "batch_size=10",
                   "--set", "drops=0.25,0.5", "--set", "schedule=cosine")  # fmt: skip
    assert result.exit_code == 0, result.output
    config = load_checkpoint(tmp_path / "run" / "last").config
    expected = {"epochs": 1, "learning_rate": 0.02, "momentum": 0.5, "val_tasks": 7,
                "batch_size": 10, "drops": [0.25, 0.5], "schedule": "cosine"}  # fmt: skip
    assert {name: config[name] for name in expected} == expected


def test_every_setting_can_be_given(root, tmp_path):
    values = {"epochs": "1", "batch_size": "4", "learning_rate": "1e-2", "schedule": "cosine",
              "drops": "[0.5]", "drop_factor": ".5", "momentum": "0.8", "nesterov": "true",
              "weight_decay": "5e-4", "train_crop": "64", "label_smoothing": "0",
              "crop_area": "0.2", "crop_aspect": "0.5,2", "jitter": "0", "flip": "False",
              "val_tasks": "3", "rotation_weight": "0.5", "mixup": "2", "mixup_start": "0.25",
              "distillation_weight": "0.25", "distillation_temperature": "2", "seed": "2",
              "classifier": "cosine", "classifier_scale": "30", "classifier_scaling": "fixed",
              "margin": "-0.02"}  # fmt: skip
    assert set(values) == set(SETTINGS)
    pairs = [text for name, value in values.items() for text in ("--set", f"{name}={value}")]
    result = train(root, tmp_path / "run", *pairs)
    assert result.exit_code == 0, result.output
    config = load_checkpoint(tmp_path / "run" / "last").config
    assert {name: config[name] for name in SETTINGS} == {
        "epochs": 1, "batch_size": 4, "learning_rate": 0.01, "schedule": "cosine", "drops": [0.5],
        "drop_factor": 0.5, "momentum": 0.8, "nesterov": True, "weight_decay": 5e-4,
        "train_crop": 64, "label_smoothing": 0, "crop_area": 0.2, "crop_aspect": [0.5, 2],
        "jitter": 0,
        "flip": False, "val_tasks": 3, "seed": 2, "rotation_weight": 0.5, "mixup": 2,
        "mixup_start": 0.25,
        "distillation_weight": 0.25, "distillation_temperature": 2, "classifier": "cosine",
        "classifier_scale": 30, "classifier_scaling": "fixed", "margin": -0.02,
    }  # fmt: skip
    assert all(getattr(TrainConfig(backbone="conv4"), name) != config[name] or name == "epochs"
               for name in SETTINGS)  # fmt: skip


def test_tensorboard_events_are_written_if_asked(root, tmp_path):
    pytest.importorskip("tensorboard")
    assert train(root, tmp_path / "without").exit_code == 0
    assert not (tmp_path / "without" / "tensorboard").exists()
    assert train(root, tmp_path / "with", "--tensorboard").exit_code == 0
    assert len(list((tmp_path / "with" / "tensorboard").glob("events.out.tfevents.*"))) == 1


def test_run_is_not_written_among_the_images(root):
    result = train(root, root)
    assert result.exit_code == 2
    assert "out must be another folder than" in result.stderr


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
        (_no_train, "has no images of the split 'train'. Put class folders under train/"),
        (_all_broken, "no image of the split 'train' can be decoded;"),
    ],
)
def test_unusable_data_gives_one_sentence(spoil, message, root, tmp_path):
    spoil(root)
    result = train(root, tmp_path / "run", "--skip-broken")
    assert result.exit_code == 2
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: ")
    assert message in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backbone", "resnet19"], "Unknown backbone 'resnet19'. Did you mean 'resnet1"),
        (["--epochs", "0"], "epochs must be a whole number of at least 1; got 0"),
        (["--lr", "0"], "lr must be a finite number above 0; got 0"),
        (["--set", "momentum"], "--set: a setting must look like NAME=VALUE, such as"),
        (["--set", "momentun=1"], "Unknown training setting 'momentun'. Did you mean 'momentum'?"),
        (["--set", "schedule=linear"], "schedule must be one of 'step', 'cosine'; got 'linear'"),
        (["--config", "none.toml"], "none.toml: cannot be read (No such file or directory)."),
        (["--device", "tpu"], "device 'tpu' is not available"),
    ],
)
def test_wrong_options_give_one_sentence(arguments, message, root, tmp_path):
    result = train(root, tmp_path / "run", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr


def test_run_folder_cannot_be_a_file(root, tmp_path):
    (tmp_path / "file").write_text("")
    result = train(root, tmp_path / "file")
    assert result.exit_code == 2
    assert "file: this folder cannot be created (File exists)." in result.stderr
