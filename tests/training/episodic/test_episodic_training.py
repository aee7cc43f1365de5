"""Training of systems on episodes, against plain tensors, and after interruptions."""

import dataclasses
import json
import math

import pytest
import torch

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, load_training
from infoshot.core.progress import Progress
from infoshot.distributed import SINGLE_PROCESS
from infoshot.images import open_dataset
from infoshot.training import (
    TrainConfig,
    base_splits,
    load_system,
    load_training_images,
    run_episodes,
    run_epochs,
)
from infoshot.training.batches import AugmentedImages
from infoshot.training.episodic.episode_batches import EpisodeBatches
from infoshot.training.episodic.episodic_config import resolve_episodic_config
from infoshot.training.episodic.registry import make_head
from infoshot.training.episodic.system_run import load_training_features
from tests.encoders import network_inputs
from tests.image_folders import make_folders

NET = "tests.heads:TinyNet"
SETTINGS = {
    "epochs": 2, "episodes_per_epoch": 6, "tasks_per_step": 2, "n_way": 3, "n_shot": 1,
    "n_query": 2, "val_tasks": 20, "seed": 1,
}  # fmt: skip


def _config(system="tests.heads:Linear", **changes):
    return resolve_episodic_config(system, NET, settings={**SETTINGS, **changes})


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    root = make_folders(tmp_path_factory.mktemp("images"), 6, size=(20, 20))
    return base_splits(open_dataset("folder", root))


@pytest.fixture(scope="module")
def images(splits):
    return load_training_images("folder", *splits, make_backbone(NET).input_spec, n_workers=1)


@pytest.fixture(scope="module")
def undisturbed(images, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    return out, run_episodes(images, _config(), out)


def _comparable(records):
    return [dataclasses.replace(record, images_per_second=0, seconds=0) for record in records]


def test_files_are_those_of_base_training(undisturbed):
    out, records = undisturbed
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock", "best", "config.toml", "curve.png", "last", "log.csv", "log.jsonl",
    ]  # fmt: skip
    kinds = sorted(path.name.partition("-")[0] for path in (out / "last").iterdir())
    assert kinds == ["checkpoint.json", "head", "training", "weights"]
    head, *lines = (json.loads(line) for line in (out / "log.jsonl").read_text().splitlines())
    assert lines == [dataclasses.asdict(record) for record in records]
    last = load_checkpoint(out / "last")
    assert last.config == head["config"]
    assert (last.config["system"], last.config["head.n_way"]) == ("tests.heads:Linear", 3)
    assert (last.class_names, last.classifier) == (("a", "b", "c", "d"), None)
    stored = load_training(out / "last").tensors
    assert torch.equal(load_system(out / "last").head.map.weight, stored["head.map.weight"])
    assert {"exp_avg.head.map.weight", "step.backbone.layers.0.weight"} <= stored.keys()


def _by_hand(images, config, model, head):
    """One epoch in plain PyTorch: squared distances, softmax and Adam written out."""
    samples = AugmentedImages(images.train, model.input_spec, config, "cpu")
    batches = EpisodeBatches(samples, images.train_labels, config, SINGLE_PROCESS)
    rates = dict.fromkeys(model.parameters(), 0.5 * 0.001) | dict.fromkeys(head.parameters(), 0.001)
    moments = {p: [torch.zeros_like(p), torch.zeros_like(p)] for p in rates}
    losses, correct = [], []
    for step, batch in enumerate(batches.epoch(0), start=1):
        z = head.map(model(batch.samples.flatten(0, 1))).view(2, 9, -1)
        loss = 0.0
        for task in range(2):
            for query, label in zip(z[task, 3:], batch.y_qry[task], strict=True):
                scores = torch.stack([-((query - z[task, k]) ** 2).sum() for k in range(3)])
                loss = loss - (scores[label] - scores.exp().sum().log()) / 12
                correct.append(float(scores.argmax() == label))
        gradients = torch.autograd.grad(loss, list(rates))
        losses.append(loss.item())
        with torch.no_grad():
            for p, g in zip(rates, gradients, strict=True):
                first, second = moments[p]
                first.mul_(0.9).add_(0.1 * g)
                second.mul_(0.999).add_(0.001 * g**2)
                m, v = first / (1 - 0.9**step), second / (1 - 0.999**step)
                p -= rates[p] * m / (v.sqrt() + 1e-8)
    return sum(losses) / 3, 100 * sum(correct) / len(correct)


def test_steps_are_those_of_plain_tensors(images, tmp_path):
    config = _config(epochs=1, backbone_rate=0.5)
    [record] = run_episodes(images, config, tmp_path)
    torch.manual_seed(1)
    model = make_backbone(NET)
    head = make_head("tests.heads:Linear", 16, 4, {"n_way": 3})
    loss, correct = _by_hand(images, config, model, head)
    assert record.loss == pytest.approx(loss, rel=1e-4)
    assert record.train_accuracy == pytest.approx(correct)
    system = load_system(tmp_path / "last")
    trained = {**system.encoder.backbone.state_dict(), **system.head.state_dict()}
    for name, value in {**model.state_dict(), **head.state_dict()}.items():
        torch.testing.assert_close(trained[name], value.detach(), atol=2e-5, rtol=1e-4)


def test_validation_is_the_rule_of_the_system(images, undisturbed, splits):
    out, records = undisturbed
    best = max(records, key=lambda record: (record.val_accuracy, -record.epoch))
    system = load_system(out)  # the best epoch
    assert system.encoder.epoch == best.epoch
    backbone = system.encoder.backbone
    with torch.no_grad():
        z = system.head.map(backbone(network_inputs(splits[1], backbone.input_spec)))
    labels = torch.tensor(splits[1].labels)
    # The tasks have the three validation classes and five queries of each.
    from infoshot.core.types import FeatureTable
    from infoshot.tasks import TaskSpec, sample_tasks

    spec = TaskSpec(n_way=3, n_shot=1, n_query=5, seed=1)
    tasks, y = sample_tasks(FeatureTable(z, labels), spec, 20)
    nearest = torch.cdist(tasks.z_qry, tasks.z_sup).argmin(-1)
    right = (nearest == y).double().mean(1)
    assert best.val_accuracy == pytest.approx(100 * right.mean().item(), abs=1e-6)
    assert best.val_ci95 == pytest.approx(100 * 1.96 * right.std().item() / math.sqrt(20))


class StoppedError(Exception):
    pass


class Stop(Progress):
    def say(self, sentence):
        raise StoppedError


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_interrupted_run_ends_with_the_same_weights(images, tmp_path, optimizer):
    config = _config(optimizer=optimizer)
    whole = run_episodes(images, config, tmp_path / "whole")
    with pytest.raises(StoppedError):
        run_episodes(images, config, tmp_path / "part", progress=Stop())
    assert len(load_training(tmp_path / "part" / "last").facts["epochs"]) == 1
    part = run_episodes(images, config, tmp_path / "part")
    assert _comparable(part) == _comparable(whole)
    for name in ("best", "last"):
        ours, theirs = (load_system(tmp_path / run / name) for run in ("part", "whole"))
        assert ours.digest == theirs.digest


def test_random_state_of_the_caller_is_unchanged(images, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run_episodes(images, _config(epochs=1, episodes_per_epoch=2), tmp_path)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("reads", ["Map", "Image"])
def test_heads_that_read_maps_or_images_train_the_backbone(images, tmp_path, reads):
    config = _config(f"tests.heads:{reads}Head", epochs=2, episodes_per_epoch=4)
    records = run_episodes(images, config, tmp_path)
    assert 0 <= records[-1].val_accuracy <= 100
    torch.manual_seed(1)
    system, before = load_system(tmp_path / "last"), make_backbone(NET)
    weights = system.encoder.backbone.state_dict()
    assert not torch.equal(weights["layers.0.weight"], before.state_dict()["layers.0.weight"])
    x = torch.randn(1, 6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    z = system.encode(x.flatten(0, 1)).unflatten(0, (1, 6))
    log_p = system.log_posterior(z[:, :2], torch.tensor([[0, 1]]), z[:, 2:], 2)
    assert log_p.shape == (1, 4, 2)


def test_frozen_backbone_is_used_through_its_features(images, splits, tmp_path):
    run_epochs(images, TrainConfig(backbone=NET, epochs=1, batch_size=12), tmp_path / "base")
    init = load_checkpoint(tmp_path / "base")
    data = load_training_features("folder", *splits, init)
    with torch.no_grad():
        x = network_inputs(splits[0], init.backbone.input_spec)
        torch.testing.assert_close(data.train_features, init.backbone(x))
    assert data.about == images.about
    config = _config(backbone_rate=0, episodes_per_epoch=20, learning_rate=0.01)
    records = run_episodes(data, config, tmp_path / "run", init=init)
    assert records[1].loss < records[0].loss
    system = load_system(tmp_path / "run")
    assert system.encoder.digest == init.digest
    assert system.encoder.config["init_sha256"] == init.digest
    # Features for a head, then by hand: the first loss of the run, before any step.
    config = dataclasses.replace(config, epochs=1, episodes_per_epoch=2)
    [first] = run_episodes(data, config, tmp_path / "first", init=init)
    torch.manual_seed(1)
    make_backbone(NET)
    head = make_head("tests.heads:Linear", 16, 4, {"n_way": 3})
    batches = EpisodeBatches(
        lambda _, indices: data.train_features[indices], images.train_labels, config,
        SINGLE_PROCESS,
    )  # fmt: skip
    [batch] = batches.epoch(0)
    z = batch.samples
    log_p = head.log_posterior(z[:, :3], batch.y_sup, z[:, 3:], 3)
    expected = -log_p.gather(-1, batch.y_qry.unsqueeze(-1)).mean()
    assert first.loss == pytest.approx(expected.item(), rel=1e-5)


def test_training_learns(tmp_path):
    """Four classes of a task; chance is 25 %."""
    root = make_folders(
        tmp_path / "data", 8, size=(20, 20), splits={"train": "abcdef", "val": "gh"}
    )
    splits = base_splits(open_dataset("folder", root))
    images = load_training_images("folder", *splits, make_backbone(NET).input_spec, n_workers=1)
    config = _config(
        "protonet", epochs=4, episodes_per_epoch=100, tasks_per_step=4, learning_rate=0.02, n_way=4,
        crop_area=0.4, jitter=0.1,
    )  # fmt: skip
    records = run_episodes(images, config, tmp_path / "run")
    assert records[-1].loss < 0.7 * records[0].loss
    assert records[-1].train_accuracy > records[0].train_accuracy + 10


def test_another_run_is_not_overwritten(images, undisturbed, tmp_path):
    out, _ = undisturbed
    for change, message in (
        ({"learning_rate": 0.5}, "learning_rate 0.001 there, 0.5 here"),
        ({"head.n_way": 4}, "head.n_way 3 there, 4 here"),
    ):
        with pytest.raises(DataError, match=rf"different training run \({message}\)"):
            run_episodes(images, _config(**change), out)
    with pytest.raises(DataError, match=r"run \(tests.heads:Linear there, protonet here\)"):
        run_episodes(images, _config("protonet"), out)
    base = TrainConfig(backbone=NET, epochs=1, batch_size=12)
    with pytest.raises(DataError, match=r"run \(tests.heads:Linear there, base training here\)"):
        run_epochs(images, base, out)
    run_epochs(images, base, tmp_path)
    with pytest.raises(DataError, match=r"run \(base training there, protonet here\)"):
        run_episodes(images, _config("protonet"), tmp_path)
    with pytest.raises(DataError, match=r"run \(its init differs\)"):
        run_episodes(images, _config(), out, init=load_checkpoint(tmp_path))


def test_images_and_features_are_not_confused(images, tmp_path):
    with pytest.raises(InvalidArgumentError, match="and above 0 for images; got 0"):
        run_episodes(images, _config(backbone_rate=0), tmp_path)


def test_divergence_raises(images, tmp_path):
    config = _config("protonet", optimizer="sgd", learning_rate=1e12)
    with pytest.raises(DataError, match=r"diverged in epoch 1 .* a lower learning"):
        run_episodes(images, config, tmp_path)
    assert not (tmp_path / "last").exists()
