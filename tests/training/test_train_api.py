"""``infoshot.training.train`` on small folders of images."""

import builtins
import dataclasses
import importlib.util
import json
import shutil
import sys
from itertools import pairwise

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones.checkpoints import load_checkpoint, load_training
from infoshot.core.errors import MissingDependencyError
from infoshot.training import TrainConfig, epochs, train
from infoshot.training.config_file import resolve_config
from infoshot.training.epochs import _import_compiler
from tests.image_folders import make_folders

HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
NEEDS_TENSORBOARD = pytest.mark.skipif(not HAS_TENSORBOARD, reason="needs tensorboard")
RECIPE = {"batch_size": 8, "learning_rate": 0.02, "val_tasks": 20}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("images"), 4)


@pytest.fixture(scope="module")
def finished(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    calls = []
    result = train(
        "folder", root, "conv4", out, epochs=3, settings=RECIPE, device="cpu",
        tensorboard=HAS_TENSORBOARD, progress=lambda *call: calls.append(call),
    )  # fmt: skip
    return result, calls


class Stop(Exception):  # noqa: N818 - not an error
    pass


def test_result_names_the_files_of_the_run(finished):
    result, _ = finished
    assert [record.epoch for record in result.records] == [1, 2, 3]
    best = max(result.records, key=lambda record: (record.val_accuracy, -record.epoch))
    assert result.best_epoch == best.epoch
    assert load_checkpoint(result.best).backbone_name == "conv4"
    config = load_checkpoint(result.last).config
    assert {name: config[name] for name in RECIPE} == RECIPE
    for path in (result.log, result.csv, result.curve, result.config_file):
        assert path.is_file()
    assert result.config == TrainConfig(backbone="conv4", epochs=3, **RECIPE)


def test_progress_counts_every_phase(finished):
    _, calls = finished
    last = {phase: (done, total) for phase, done, total in calls}
    assert last == {"decoding": (28, 28), "training": (48, 48)}


def test_configuration_of_a_run_repeats_it(finished, root, tmp_path):
    result, _ = finished
    again = train("folder", root, "conv4", tmp_path, config=result.config_file, device="cpu")
    assert again.config == result.config
    assert load_checkpoint(again.last).digest == load_checkpoint(result.last).digest


def test_settings_change_the_training(root, tmp_path):
    recipe = TrainConfig(backbone="conv4", epochs=1, **RECIPE)
    digests = set()
    changes = ({}, {"nesterov": True}, {"label_smoothing": 0}, {"weight_decay": 0.1},
               {"crop_area": 0.9}, {"train_crop": 64}, {"jitter": 0})  # fmt: skip
    for number, settings in enumerate(changes):
        result = train(
            "folder", root, "conv4", tmp_path / str(number), config=recipe, settings=settings,
            device="cpu",
        )  # fmt: skip
        digests.add(load_checkpoint(result.last).digest)
    assert len(digests) == len(changes)


def test_recipe_is_overridden_by_file_options_and_settings(root, tmp_path):
    (tmp_path / "own.toml").write_text("weight_decay = 0.01\nbatch_size = 7\n")
    config = resolve_config(
        "conv4", tmp_path / "own.toml", {"batch_size": 8}, {"mixup": 1.0}, recipe="strong"
    )
    assert (config.weight_decay, config.batch_size, config.mixup) == (0.01, 8, 1.0)
    assert (config.rotation_weight, config.schedule) == (1.0, "cosine")
    assert resolve_config("conv4", recipe="paper") == TrainConfig(backbone="conv4")
    with pytest.raises(InvalidArgumentError, match=r"Unknown recipe 'stron'. .* 'strong'\?"):
        train("folder", root, "conv4", tmp_path / "run", recipe="stron", device="cpu")


STRONG = {**RECIPE, "rotation_weight": 1.0, "mixup": 2.0}


@pytest.fixture(scope="module")
def strong(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("strong")
    return train("folder", root, "conv4", out, epochs=3, settings=STRONG, device="cpu")


def test_interrupted_run_with_rotation_and_mixup_resumes_to_the_same_weights(
    strong, root, tmp_path, monkeypatch
):
    class StoppedError(Exception):
        pass

    original = epochs.EpochRecord.summary

    def stop(record, n_epochs):
        if record.epoch == 2:
            raise StoppedError
        return original(record, n_epochs)

    with monkeypatch.context() as patch:
        patch.setattr(epochs.EpochRecord, "summary", stop)
        with pytest.raises(StoppedError):
            train("folder", root, "conv4", tmp_path, epochs=3, settings=STRONG, device="cpu")
    again = train("folder", root, "conv4", tmp_path, epochs=3, settings=STRONG, device="cpu")
    assert load_checkpoint(again.last).digest == load_checkpoint(strong.last).digest
    ours, theirs = load_training(again.last).tensors, load_training(strong.last).tensors
    assert ours.keys() == theirs.keys() >= {"angle_head.weight", "momentum.angle_head.weight"}
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_mixup_begins_after_its_share_of_the_epochs(root, tmp_path):
    def losses(**settings):
        run = tmp_path / str(len(list(tmp_path.iterdir())))
        settings = {**RECIPE, "rotation_weight": 1.0, **settings}
        result = train("folder", root, "conv4", run, epochs=3, settings=settings, device="cpu")
        return [record.loss for record in result.records]

    plain, late = losses(), losses(mixup=2.0, mixup_start=2 / 3)
    assert late[:2] == plain[:2]
    assert late[2] != plain[2]
    assert losses(mixup=2.0)[0] != plain[0]


def test_run_without_a_finished_epoch_is_no_checkpoint_yet(root, tmp_path):
    def stop(phase, done, total):
        if phase == "training" and done > 0:
            raise Stop

    run, arguments = tmp_path / "run", {"epochs": 1, "settings": RECIPE, "device": "cpu"}
    with pytest.raises(Stop):
        train("folder", root, "conv4", run, **arguments, progress=stop)
    message = (
        f"{run}: no epoch of this training is finished yet, so there is no checkpoint; if it was "
        "interrupted, rerun the training to resume it."
    )
    for named in (run, run / "best", run / "last", run / "best" / "checkpoint.json"):
        with pytest.raises(DataError) as caught:
            load_checkpoint(named)
        assert str(caught.value) == message
    with pytest.raises(DataError, match="no epoch of this training is finished yet"):
        train("folder", root, "conv4", tmp_path / "other", teacher=run, **arguments)
    train("folder", root, "conv4", run, **arguments)
    assert load_checkpoint(run).epoch == 1
    with pytest.raises(DataError, match="first: this checkpoint folder does not exist"):
        load_checkpoint(run / "first")


def test_student_learns_from_its_teacher(strong, root, tmp_path):
    settings = {**RECIPE, "distillation_weight": 1.0, "learning_rate": 0.05}
    arguments = ("folder", root, "conv4", tmp_path / "student")
    student = train(*arguments, epochs=12, settings=settings, teacher=strong.last, device="cpu")
    losses = [record.loss for record in student.records]
    assert losses[-1] < 0.5 * losses[0]  # the divergence from the teacher
    with pytest.raises(DataError, match=r"different training run \(its teacher differs\)"):
        train(*arguments, epochs=12, settings=settings, teacher=strong.best, device="cpu")


def test_teacher_that_cannot_teach_is_named(strong, root, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(strong.last, old)
    description = json.loads((old / "checkpoint.json").read_text())
    del description["classifier_sha256"]
    (old / "checkpoint.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match="has no classifier, so it cannot teach"):
        train("folder", root, "conv4", tmp_path / "run", teacher=old, device="cpu")
    description = json.loads((strong.last / "checkpoint.json").read_text())
    description["class_names"][0] = "other"
    shutil.copytree(strong.last, tmp_path / "other")
    (tmp_path / "other" / "checkpoint.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match="the teacher was trained on other classes"):
        train("folder", root, "conv4", tmp_path / "run", teacher=tmp_path / "other", device="cpu")


def test_different_run_is_described_with_few_digits(root, tmp_path):
    arguments = {"epochs": 1, "settings": RECIPE, "device": "cpu"}
    train("folder", root, "conv4", tmp_path, **arguments)
    for drops, shown in (([0.5, 0.8], "[0.5, 0.7333] there, [0.5, 0.8] here"),
                         ([0.5, 0.7333], "[0.5, 0.7333333333333333] there, [0.5, 0.7333] here"),
                         ):  # fmt: skip
        with pytest.raises(DataError) as caught:
            train("folder", root, "conv4", tmp_path,
                  **arguments | {"settings": {**RECIPE, "drops": drops}})  # fmt: skip
        assert f"(drops {shown})" in str(caught.value)
    assert "drops = [0.5, 0.7333333333333333]" in (tmp_path / "config.toml").read_text()


def test_run_from_before_new_settings_resumes(finished, root, tmp_path):
    """A stored configuration without the new fields counts as having their defaults."""
    result, _ = finished
    shutil.copytree(result.last.parent, tmp_path, dirs_exist_ok=True)
    new = ("schedule", "drop_factor", "nesterov", "train_crop", "crop_area", "crop_aspect",
           "jitter", "flip")  # fmt: skip
    for name in ("best", "last"):
        path = tmp_path / name / "checkpoint.json"
        description = json.loads(path.read_text())
        for field in new:
            del description["config"][field]
        path.write_text(json.dumps(description))
    (tmp_path / "log.csv").unlink()
    again = train("folder", root, "conv4", tmp_path, epochs=3, settings=RECIPE, device="cpu")
    assert again.records == result.records
    assert again.csv.read_bytes() == result.csv.read_bytes()
    assert again.log.read_bytes() == result.log.read_bytes()  # with the machine that trained
    with pytest.raises(DataError, match=r"different training run \(flip True there, False here\)"):
        train("folder", root, "conv4", tmp_path, epochs=3, settings={**RECIPE, "flip": False},
              device="cpu")  # fmt: skip


def _scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}


def _check_events(out, records):
    scalars = _scalars(out / "tensorboard")
    fields = {"loss/train": "loss", "accuracy/train": "train_accuracy",
              "accuracy/validation": "val_accuracy", "learning_rate": "learning_rate",
              "images_per_second": "images_per_second"}  # fmt: skip
    assert scalars.keys() == fields.keys()
    for tag, field in fields.items():
        assert [event.step for event in scalars[tag]] == [record.epoch for record in records]
        expected = [getattr(record, field) for record in records]
        assert [event.value for event in scalars[tag]] == pytest.approx(expected, rel=1e-6)
    times = [event.wall_time for event in scalars["loss/train"]]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps == pytest.approx([record.seconds for record in records[1:]], abs=1e-3)


@NEEDS_TENSORBOARD
def test_tensorboard_has_every_epoch(finished):
    result, _ = finished
    _check_events(result.last.parent, result.records)


@NEEDS_TENSORBOARD
def test_resumed_run_has_every_epoch_once(root, tmp_path):
    def stop(phase, done, total):
        if phase == "training" and done > 35:  # in the third epoch
            raise Stop

    arguments = ("folder", root, "conv4", tmp_path)
    options = {"epochs": 3, "settings": RECIPE, "device": "cpu", "tensorboard": True}
    with pytest.raises(Stop):
        train(*arguments, **options, progress=stop)
    # A killed run may lack logs of its checkpoint's last epoch, or have events of a later one.
    path = tmp_path / "log.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    result = train(*arguments, **options)
    _check_events(tmp_path, result.records)
    assert [line.split(",")[0] for line in result.csv.read_text().splitlines()] == [
        "epoch", "1", "2", "3",
    ]  # fmt: skip
    lines = [json.loads(line) for line in result.log.read_text().splitlines()[1:]]
    assert lines == [dataclasses.asdict(record) for record in result.records]


@NEEDS_TENSORBOARD
def test_event_files_of_the_user_are_kept(tmp_path):
    from infoshot.training.events import EventLog

    mine = tmp_path / "events.out.tfevents.1700000000.host.1.0"
    mine.write_text("mine")
    for _ in range(2):
        EventLog(tmp_path, []).close()
    assert mine.read_text() == "mine"
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2  # and that of the last run


def test_missing_tensorboard_gives_the_install_command(root, tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("torch.utils.tensorboard"):
            raise ModuleNotFoundError("No module named 'tensorboard'", name="tensorboard")
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"pip install 'infoshot\[tensorboard\]'"):
        train("folder", root, "conv4", tmp_path / "run", tensorboard=True, device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lr": 0}, InvalidArgumentError, "lr must be a finite number above 0; got 0"),
        ({"settings": {"epoch": 3}}, InvalidArgumentError, "Did you mean 'epochs'"),
        ({"backbone": "resnet19"}, InvalidArgumentError, "Unknown backbone 'resnet19'"),
        ({"dataset": "cifar"}, InvalidArgumentError, "Unknown dataset 'cifar'"),
        ({"config": "none.toml"}, DataError, "none.toml: cannot be read"),
        ({"settings": {"label_smoothing": 0.9}}, InvalidArgumentError, "at most 0.75 for 4"),
        ({"root": "nowhere"}, DataError, "nowhere: there is no such folder"),
    ],
)
def test_wrong_input_is_named(root, tmp_path, change, error, message):
    arguments = {"dataset": "folder", "root": root, "backbone": "conv4", "device": "cpu"}
    with pytest.raises(error, match=message):
        train(**{**arguments, **change}, out=tmp_path / "runs" / "one")
    assert not any(tmp_path.iterdir())


def test_missing_validation_and_broken_images_give_warnings(tmp_path):
    root = make_folders(tmp_path / "data", 4, splits={"train": "abc", "test": "d"})
    (root / "train" / "a" / "1.png").write_bytes(b"")
    for path in (root / "train" / "b").iterdir():
        path.write_bytes(b"")
    with pytest.warns(UserWarning, match="split") as caught:
        result = train(
            "folder", root, "conv4", tmp_path / "run", epochs=1, settings=RECIPE, device="cpu",
            skip_broken=True,
        )  # fmt: skip
    assert result.best_epoch == 1
    assert result.records[0].val_accuracy is None
    skipped, empty, validation = (str(warning.message) for warning in caught)
    assert skipped.startswith("skipped 5 of 12 images of the split 'train': ")
    assert "1.png: the file is empty." in skipped
    assert empty == "these classes of the split 'train' have no image left: b."
    assert "the last epoch counts as the best" in validation


def test_compiler_warning_of_pytorch_is_hidden(monkeypatch):
    """The import that warns; without our filter pytest would raise it as an error."""
    monkeypatch.delitem(sys.modules, "torch.utils.mkldnn", raising=False)
    monkeypatch.delattr(torch.utils, "mkldnn", raising=False)
    _import_compiler()
    assert "torch.utils.mkldnn" in sys.modules
