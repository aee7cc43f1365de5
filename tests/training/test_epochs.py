import csv
import dataclasses
import errno
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from infoshot import DataError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, load_training
from infoshot.core.atomic import sole_writer
from infoshot.core.progress import Progress
from infoshot.distributed import SINGLE_PROCESS
from infoshot.images import open_dataset
from infoshot.training import EpochRecord, TrainConfig, load_training_images, run_epochs
from infoshot.training.base_classifier import BaseClassifier
from infoshot.training.batches import Batches
from infoshot.training.records import best_epoch
from infoshot.training.training_images import base_splits
from tests.image_folders import make_folders

CONFIG = TrainConfig(
    backbone="conv4", epochs=3, batch_size=10, learning_rate=0.02, val_tasks=20, seed=1
)


def _load(root):
    train_split, val_split = base_splits(open_dataset("folder", root))
    spec = make_backbone("conv4").input_spec
    return load_training_images("folder", train_split, val_split, spec, n_workers=2)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return _load(make_folders(tmp_path_factory.mktemp("images"), 5))


@pytest.fixture(scope="module")
def undisturbed(images, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    return out, run_epochs(images, CONFIG, out)


def _digests(out):
    return {name: load_checkpoint(out / name).digest for name in ("best", "last")} | {
        "state": load_training(out / "last").tensors["momentum.head.weight"].sum().item()
    }


def _comparable(records):
    return [dataclasses.replace(record, images_per_second=0, seconds=0) for record in records]


def test_training_lowers_the_loss_and_writes_checkpoints_and_logs(undisturbed, images):
    out, records = undisturbed
    assert [record.epoch for record in records] == [1, 2, 3]
    assert records[-1].loss < records[0].loss
    last = load_checkpoint(out / "last")
    assert last.class_names == images.class_names == ("a", "b", "c", "d")
    assert (last.epoch, last.chosen_as, last.trained_on) == (3, "last", "folder")
    best = load_checkpoint(out)  # the run stands for its best checkpoint
    assert (best.epoch, best.chosen_as) == (best_epoch(records), "best")
    assert last.config["learning_rate"] == 0.02
    assert last.config["dataset"] == "folder"
    assert len(last.config["train_sha256"]) == 64
    head, *lines = (json.loads(line) for line in (out / "log.jsonl").read_text().splitlines())
    assert head["config"] == last.config
    state = load_training(out / "last").tensors
    assert last.classifier.keys() == {"weight", "bias"}
    for name, value in last.classifier.items():
        assert torch.equal(value, state[f"head.{name}"])
    assert load_checkpoint(out / "best").classifier["weight"].shape == (4, 64)
    assert "torch" in head["environment"]
    assert lines == [dataclasses.asdict(record) for record in records]
    with (out / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [field.name for field in dataclasses.fields(EpochRecord)]
    for row, record in zip(rows, records, strict=True):
        assert {name: float(cell) for name, cell in row.items()} == dataclasses.asdict(record)
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_steps_follow_the_recipe(images, tmp_path):
    """One epoch against plain tensors: momentum, decay and smoothed loss written out by hand."""
    config = dataclasses.replace(CONFIG, epochs=1)
    [record] = run_epochs(images, config, tmp_path)
    torch.manual_seed(1)
    model = BaseClassifier(make_backbone("conv4"), 4)
    velocity = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    losses = []
    spec = model.backbone.input_spec
    for x, y in Batches(images, spec, config, ranks=SINGLE_PROCESS).epoch(0):
        log_p = model(x)[0].log_softmax(1)
        true = log_p[torch.arange(10), y]
        loss = -(0.9 * true + 0.1 / 3 * (log_p.sum(1) - true)).mean()
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for name, value in model.named_parameters():
                velocity[name] = 0.9 * velocity[name] + value.grad + 1e-4 * value
                value -= 0.02 * velocity[name]
    assert record.loss == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    trained = load_checkpoint(tmp_path / "last").backbone.state_dict()
    for name, value in model.backbone.state_dict().items():
        torch.testing.assert_close(trained[name], value, atol=1e-3, rtol=1e-3)


def test_random_state_of_the_caller_is_unchanged(images, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run_epochs(images, dataclasses.replace(CONFIG, epochs=1), tmp_path)
    assert torch.equal(torch.rand(3), expected)


class StoppedError(Exception):
    pass


class Watch(Progress):
    """Keep the messages of a run, and stop it after some epoch."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.said, self._stop_after = [], stop_after

    def say(self, sentence):
        self.said.append(sentence)
        if self._stop_after and sentence.startswith(f"epoch {self._stop_after}/"):
            raise StoppedError


def _writes(monkeypatch, act):
    """Call ``act(number, path)`` before each written file, counted from 1."""
    original, count = Path.write_bytes, [0]

    def write(path, data):
        count[0] += 1
        act(count[0], path)
        return original(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    return count


def test_run_stopped_before_any_write_resumes_to_the_same_tensors(
    images, undisturbed, tmp_path, monkeypatch
):
    reference, records = undisturbed
    with monkeypatch.context() as patch:
        count = _writes(patch, lambda number, path: None)
        run_epochs(images, CONFIG, tmp_path / "counted")
    n_writes = count[0]
    # settings; weights, state, classifier, description, logs; best; curve
    assert n_writes >= 1 + 3 * 6 + 3 + 1
    for stop in range(1, n_writes + 1):
        out = tmp_path / str(stop)

        def act(number, path, stop=stop):
            if number == stop:
                raise StoppedError

        with monkeypatch.context() as patch:
            _writes(patch, act)
            with pytest.raises(StoppedError):
                run_epochs(images, CONFIG, out)
        n_done = _epochs_in(out)
        watch = Watch()
        again = run_epochs(images, CONFIG, out, progress=watch)
        assert _epochs_said(watch) == list(range(n_done + 1, 4))
        assert (f"Resuming after epoch {n_done} of 3 in {out}." in watch.said) == (0 < n_done < 3)
        assert (f"All 3 epochs in {out} are already done." in watch.said) == (n_done == 3)
        assert (watch.done, watch.total) == (60, 60)
        assert _comparable(again) == _comparable(records)
        assert _digests(out) == _digests(reference)
        assert sorted(path.name for path in out.iterdir()) == [
            ".lock", "best", "config.toml", "curve.png", "last", "log.csv", "log.jsonl",
        ]  # fmt: skip
        assert len(list((out / "last").iterdir())) == 4
        assert len(list((out / "best").iterdir())) == 3


def _epochs_in(out):
    if not (out / "last" / "checkpoint.json").exists():
        return 0
    return len(load_training(out / "last").facts["epochs"])


def _epochs_said(watch):
    """Epochs that the run has trained, by its messages."""
    epochs = (re.match(r"epoch (\d+)/", sentence) for sentence in watch.said)
    return [int(match[1]) for match in epochs if match]


def test_full_disk_raises_and_keeps_the_finished_epochs(images, undisturbed, tmp_path, monkeypatch):
    def act(number, path):
        if number > 8:  # the first epoch fits
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        _writes(patch, act)
        with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
            run_epochs(images, CONFIG, tmp_path)
    assert _epochs_in(tmp_path) == 1
    run_epochs(images, CONFIG, tmp_path)
    assert _digests(tmp_path) == _digests(undisturbed[0])


def test_finished_training_is_not_repeated(images, undisturbed):
    out, records = undisturbed
    before = {path: path.read_bytes() for path in out.glob("log.*")}
    watch = Watch()
    assert run_epochs(images, CONFIG, out, progress=watch) == records
    assert watch.said == [f"All 3 epochs in {out} are already done."]
    assert {path: path.read_bytes() for path in out.glob("log.*")} == before


def test_another_training_is_not_overwritten(images, undisturbed):
    out, _ = undisturbed
    before = _digests(out)
    with pytest.raises(
        DataError, match=r"a different training run \(learning_rate 0.02 there, 0.05"
    ):
        run_epochs(images, dataclasses.replace(CONFIG, learning_rate=0.05), out)
    other = dataclasses.replace(images, about={**images.about, "train_sha256": "0" * 64})
    with pytest.raises(DataError, match=r"holds a different training run .its train images differ"):
        run_epochs(other, CONFIG, out)
    assert _digests(out) == before


def test_divergence_raises(images, tmp_path, monkeypatch):
    monkeypatch.setattr("infoshot.core.checks._LARGEST", float("inf"))
    for batch_size in (10, 32):  # several steps, and one step whose loss was finite
        config = dataclasses.replace(CONFIG, learning_rate=1e38, batch_size=batch_size)
        with pytest.raises(DataError, match=r"diverged in epoch 1 .* a lower learning"):
            run_epochs(images, config, tmp_path)
        assert not (tmp_path / "last").exists()


def test_missing_best_is_written_on_resuming(images, tmp_path):
    config = dataclasses.replace(CONFIG, epochs=1)
    run_epochs(images, config, tmp_path)
    digest = load_checkpoint(tmp_path / "best").digest
    shutil.rmtree(tmp_path / "best")
    run_epochs(images, config, tmp_path)
    assert load_checkpoint(tmp_path / "best").digest == digest


def test_partial_files_of_a_killed_writer_are_deleted(images, tmp_path):
    (tmp_path / "last").mkdir()
    (tmp_path / ".infoshot-writers").write_text(f"{'1' * 16}\n")
    leftover = tmp_path / "last" / f".weights-0.safetensors.{'1' * 16}{'2' * 16}.infoshot-part"
    mine = tmp_path / "last" / ".mine.part"
    for path in (leftover, mine):
        path.write_bytes(b"half")
    run_epochs(images, dataclasses.replace(CONFIG, epochs=1), tmp_path)
    assert not leftover.exists()
    assert mine.exists()


def test_two_runs_cannot_share_a_folder(images, tmp_path):
    with (
        sole_writer(tmp_path),
        pytest.raises(DataError, match="another process is writing there"),
    ):
        run_epochs(images, CONFIG, tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b""])
def test_damaged_state_is_named(images, tmp_path, damage):
    config = dataclasses.replace(CONFIG, epochs=1)
    run_epochs(images, config, tmp_path)
    [path] = (tmp_path / "last").glob("training-*")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"training-.*: truncated or changed"):
        run_epochs(images, config, tmp_path)


def test_without_validation_classes_the_last_epoch_is_the_best(tmp_path):
    images = _load(make_folders(tmp_path / "data", 6, splits={"train": "ab", "test": "c"}))
    records = run_epochs(images, dataclasses.replace(CONFIG, epochs=2), tmp_path / "out")
    assert [record.val_accuracy for record in records] == [None, None]
    digests = _digests(tmp_path / "out")
    assert digests["best"] == digests["last"]


def _check_resumes_exactly(images, config, folder):
    """A run that is interrupted after its first epoch ends with the same weights."""
    run_epochs(images, config, folder / "whole")
    with pytest.raises(StoppedError):
        run_epochs(images, config, folder / "part", progress=Watch(stop_after=1))
    assert _epochs_in(folder / "part") == 1
    watch = Watch()
    run_epochs(images, config, folder / "part", progress=watch)
    assert _epochs_said(watch) == [2]
    whole, part = (load_checkpoint(folder / name / "last").digest for name in ("whole", "part"))
    assert whole == part


def test_run_without_momentum_resumes(images, tmp_path):
    config = dataclasses.replace(CONFIG, momentum=0.0, epochs=2)
    _check_resumes_exactly(images, config, tmp_path)


def test_dropout_is_the_same_after_a_restart(images, tmp_path):
    config = dataclasses.replace(CONFIG, backbone="resnet12", epochs=2, batch_size=4)
    few = dataclasses.replace(
        images,
        train=dataclasses.replace(
            images.train, images=images.train.images[::5], sizes=images.train.sizes[::5]
        ),
        train_labels=images.train_labels[::5],
        val_crops=None,
    )
    _check_resumes_exactly(few, config, tmp_path)
