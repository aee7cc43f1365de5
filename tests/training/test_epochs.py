import dataclasses
import errno
import json
import shutil
from pathlib import Path

import pytest
import torch

from infoshot import DataError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, load_training
from infoshot.core.atomic import sole_writer
from infoshot.distributed import SINGLE_PROCESS
from infoshot.images import open_dataset
from infoshot.training import TrainConfig, load_training_images, train
from infoshot.training.batches import Batches
from infoshot.training.epochs import Classifier
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
    return _load(make_folders(tmp_path_factory.mktemp("images"), 8))


@pytest.fixture(scope="module")
def undisturbed(images, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    return out, train(images, CONFIG, out)


def _digests(out):
    return {name: load_checkpoint(out / name).digest for name in ("best", "last")} | {
        "state": load_training(out / "last").tensors["momentum.head.weight"].sum().item()
    }


def _comparable(records):
    return [dataclasses.replace(record, images_per_second=0, seconds=0) for record in records]


def test_it_learns_and_keeps_what_it_did(undisturbed, images):
    out, records = undisturbed
    assert [record.epoch for record in records] == [1, 2, 3]
    assert records[-1].loss < records[0].loss
    last = load_checkpoint(out / "last")
    assert last.class_names == images.class_names == ("a", "b", "c", "d")
    assert last.config["learning_rate"] == 0.02
    assert last.config["dataset"] == "folder"
    assert len(last.config["train_sha256"]) == 64
    head, *lines = (json.loads(line) for line in (out / "log.jsonl").read_text().splitlines())
    assert head["config"] == last.config
    assert "torch" in head["environment"]
    assert lines == [dataclasses.asdict(record) for record in records]
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_steps_are_those_of_the_recipe_written_out(images, tmp_path):
    """One epoch against plain tensors: momentum, decay and smoothed loss written down by hand."""
    config = dataclasses.replace(CONFIG, epochs=1)
    [record] = train(images, config, tmp_path)
    torch.manual_seed(1)
    model = Classifier(make_backbone("conv4"), 4)
    velocity = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    losses = []
    spec = model.backbone.input_spec
    for x, y in Batches(images, spec, batch_size=10, seed=1, ranks=SINGLE_PROCESS).epoch(0):
        log_p = model(x).log_softmax(1)
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


def test_callers_random_numbers_are_left_alone(images, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(images, dataclasses.replace(CONFIG, epochs=1), tmp_path)
    assert torch.equal(torch.rand(3), expected)


class StoppedError(Exception):
    pass


def _writes(monkeypatch, act):
    """Call ``act(number, path)`` before every file that is written, counted from 1."""
    original, count = Path.write_bytes, [0]

    def write(path, data):
        count[0] += 1
        act(count[0], path)
        return original(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    return count


def test_stopped_before_any_write_it_ends_with_the_same_tensors(
    images, undisturbed, tmp_path, monkeypatch
):
    reference, records = undisturbed
    with monkeypatch.context() as patch:
        count = _writes(patch, lambda number, path: None)
        train(images, CONFIG, tmp_path / "counted")
    n_writes = count[0]
    assert n_writes >= 3 * 4 + 2 + 1  # weights, state, description and log; a best one; the curve
    for stop in range(1, n_writes + 1):
        out = tmp_path / str(stop)

        def act(number, path, stop=stop):
            if number == stop:
                raise StoppedError

        with monkeypatch.context() as patch:
            _writes(patch, act)
            with pytest.raises(StoppedError):
                train(images, CONFIG, out)
        n_done = _epochs_in(out)
        seen = []

        def note(done, resumed, seen=seen):
            seen.append(len(done))

        again = train(images, CONFIG, out, on_epoch=note)
        assert seen == list(range(n_done, 4))  # it went on, and did not start anew
        assert _comparable(again) == _comparable(records)
        assert _digests(out) == _digests(reference)
        assert sorted(path.name for path in out.iterdir()) == [
            ".lock", "best", "curve.png", "last", "log.jsonl",
        ]  # fmt: skip
        assert len(list((out / "last").iterdir())) == 3
        assert len(list((out / "best").iterdir())) == 2


def _epochs_in(out):
    if not (out / "last" / "checkpoint.json").exists():
        return 0
    return len(load_training(out / "last").facts["epochs"])


def _must_go_on(records, resumed):
    assert records


def test_full_disk_is_said_and_what_was_there_stays(images, undisturbed, tmp_path, monkeypatch):
    def act(number, path):
        if number > 5:  # the first epoch fits
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        _writes(patch, act)
        with pytest.raises(DataError, match=r"cannot be written \(No space left on device\)"):
            train(images, CONFIG, tmp_path)
    assert _epochs_in(tmp_path) == 1
    train(images, CONFIG, tmp_path)
    assert _digests(tmp_path) == _digests(undisturbed[0])


def test_finished_training_is_not_repeated(images, undisturbed, monkeypatch):
    out, records = undisturbed
    seen = []
    again = train(
        images, CONFIG, out, on_epoch=lambda done, resumed: seen.append((len(done), resumed))
    )
    assert again == records
    assert seen == [(3, True)]


def test_another_training_is_not_overwritten(images, undisturbed):
    out, _ = undisturbed
    before = _digests(out)
    with pytest.raises(DataError, match=r"holds another training \(learning_rate 0.02 there, 0.05"):
        train(images, dataclasses.replace(CONFIG, learning_rate=0.05), out)
    other = dataclasses.replace(images, about={**images.about, "train_sha256": "0" * 64})
    with pytest.raises(
        DataError, match=r"holds another training .its train images are not the same"
    ):
        train(other, CONFIG, out)
    assert _digests(out) == before


def test_diverged_training_is_said(images, tmp_path):
    for batch_size in (10, 32):  # several steps, and a single one whose loss was still fine
        config = dataclasses.replace(CONFIG, learning_rate=1e38, batch_size=batch_size)
        with pytest.raises(DataError, match=r"diverged in epoch 1 .* a lower learning"):
            train(images, config, tmp_path)
        assert not (tmp_path / "last").exists()


def test_best_is_made_good_if_its_writing_was_cut_off(images, tmp_path):
    config = dataclasses.replace(CONFIG, epochs=1)
    train(images, config, tmp_path)
    digest = load_checkpoint(tmp_path / "best").digest
    shutil.rmtree(tmp_path / "best")
    train(images, config, tmp_path)
    assert load_checkpoint(tmp_path / "best").digest == digest


def test_leftovers_of_a_killed_writer_are_cleared_away(images, tmp_path):
    (tmp_path / "last").mkdir()
    leftover = tmp_path / "last" / ".weights-0.safetensors.0.part"
    leftover.write_bytes(b"half")
    train(images, dataclasses.replace(CONFIG, epochs=1), tmp_path)
    assert not leftover.exists()


def test_two_trainings_do_not_share_a_folder(images, tmp_path):
    with (
        sole_writer(tmp_path),
        pytest.raises(DataError, match="another process is writing there"),
    ):
        train(images, CONFIG, tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b""])
def test_damaged_state_is_named(images, tmp_path, damage):
    config = dataclasses.replace(CONFIG, epochs=1)
    train(images, config, tmp_path)
    [path] = (tmp_path / "last").glob("training-*")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"training-.*: truncated or changed"):
        train(images, config, tmp_path)


def test_without_validation_classes_the_last_epoch_is_the_best(tmp_path):
    images = _load(make_folders(tmp_path / "data", 6, splits={"train": "ab", "test": "c"}))
    records = train(images, dataclasses.replace(CONFIG, epochs=2), tmp_path / "out")
    assert [record.val_accuracy for record in records] == [None, None]
    digests = _digests(tmp_path / "out")
    assert digests["best"] == digests["last"]


def _check_resumes_exactly(images, config, folder):
    """Interrupted after its first epoch or not, a training ends with the same weights."""
    train(images, config, folder / "whole")

    def stop(records, resumed):
        if len(records) == 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(images, config, folder / "part", on_epoch=stop)
    assert _epochs_in(folder / "part") == 1
    train(images, config, folder / "part", on_epoch=_must_go_on)
    whole, part = (load_checkpoint(folder / name / "last").digest for name in ("whole", "part"))
    assert whole == part


def test_without_momentum_it_resumes_too(images, tmp_path):
    config = dataclasses.replace(CONFIG, momentum=0.0, epochs=2)
    _check_resumes_exactly(images, config, tmp_path)


def test_dropout_is_the_same_after_a_restart(images, tmp_path):
    config = dataclasses.replace(CONFIG, backbone="resnet12", epochs=2, batch_size=4)
    few = dataclasses.replace(
        images,
        train=dataclasses.replace(
            images.train, images=images.train.images[::8], sizes=images.train.sizes[::8]
        ),
        train_labels=images.train_labels[::8],
        val_crops=None,
    )
    _check_resumes_exactly(few, config, tmp_path)
