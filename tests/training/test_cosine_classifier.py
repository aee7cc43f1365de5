"""Base training with a cosine classifier: logits, losses, checkpoints, resuming, recipes."""

import dataclasses
import json

import pytest
import torch
from torch.nn.functional import softmax

from infoshot import DataError
from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoints import load_checkpoint, load_training, save_checkpoint
from infoshot.reproduction.ent_min import EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.reproduction.whole_network import Network
from infoshot.training import TrainConfig, epochs, train
from infoshot.training.base_classifier import (
    BaseClassifier,
    load_teacher,
    make_classifier,
    restore_classifier,
)
from infoshot.training.config_file import resolve_config
from infoshot.training.cosine_classifier import CosineClassifier
from infoshot.training.losses import TrainingLoss, turn_quarters
from infoshot.training.manifold_mixup import ManifoldMixup
from infoshot.training.recipes import RECIPES
from tests.image_folders import make_folders

N, CLASSES, SCALE, MARGIN = 8, 3, 7.0, -0.3
FIXED = {"classifier": "cosine", "classifier_scale": SCALE, "classifier_scaling": "fixed"}


def _config(**settings):
    given = {"backbone": "conv4", "label_smoothing": 0.0, "margin": MARGIN, **FIXED, **settings}
    return TrainConfig(**given)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 3, 16, 16, generator=generator)
    return x, torch.randint(0, CLASSES, (N,), generator=generator)


@pytest.fixture
def network():
    torch.manual_seed(1)
    backbone = make_backbone("conv4")
    head = make_classifier(_config(), backbone.feature_dim, CLASSES)
    return BaseClassifier(backbone, CLASSES, predicts_angle=True, head=head).train()


def _cosines(features, weight):
    return torch.stack(
        [torch.stack([f @ w / (f @ f).sqrt() / (w @ w).sqrt() for w in weight]) for f in features]
    )


def _loss(cosines, y, smoothing=0.0):
    """-sum_k t_k log softmax_k(s (cos_k - m [k = y])), averaged over the images."""
    total = 0.0
    for row, label in zip(cosines, y.tolist(), strict=True):
        logits = torch.stack([SCALE * (c - MARGIN * (k == label)) for k, c in enumerate(row)])
        for k in range(CLASSES):
            target = 1 - smoothing if k == label else smoothing / (CLASSES - 1)
            total = total - target * (logits[k] - logits.exp().sum().log())
    return total / len(y)


@pytest.mark.parametrize("scaling", ["fixed", "learned", "per-class"])
def test_logits_are_scaled_cosines(scaling):
    torch.manual_seed(0)
    head = CosineClassifier(5, CLASSES, 4.0, scaling).double()
    features = torch.randn(N, 5, dtype=torch.float64)
    torch.testing.assert_close(head(features), 4 * _cosines(features, head.weight))
    torch.testing.assert_close(head(100 * features), head(features))
    assert not head(torch.zeros(1, 5, dtype=torch.float64)).any()
    learned = {name: value.shape for name, value in head.named_parameters()}
    shapes = {"fixed": {}, "learned": {"scale": ()}, "per-class": {"scale": (CLASSES,)}}[scaling]
    assert learned == {"weight": (CLASSES, 5), **shapes}
    assert head.state_dict().keys() == {"weight", "scale"}
    same = restore_classifier(head.float().state_dict())
    assert torch.equal(same(features.float()), head(features.float()))


def test_cosines_are_not_computed_in_half_precision():
    torch.manual_seed(0)
    head, features = CosineClassifier(64, CLASSES, 30.0), torch.randn(N, 64)
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(features)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, head(features))


def test_margin_is_subtracted_from_the_true_cosine(network, batch):
    x, y = batch
    cosines = _cosines(network.backbone(x), network.head.weight)
    smoothed = TrainingLoss(_config(), 0.15)  # as PyTorch counts a smoothing of 0.1
    loss, correct = smoothed(network, x, y)
    torch.testing.assert_close(loss, _loss(cosines, y, smoothing=0.1))
    assert int(correct) == int((cosines.argmax(1) == y).sum())  # without the margin
    easier = TrainingLoss(_config(margin=2 * MARGIN), 0.0)(network, x, y)[0]
    assert easier < TrainingLoss(_config(), 0.0)(network, x, y)[0]  # negative margins help


def test_margin_with_rotation_prediction(network, batch):
    x, y = batch
    turned, turns = turn_quarters(x)
    features = network.backbone(torch.cat((x, turned)))
    cosines = _cosines(features, network.head.weight)
    angles = network.angle_head(features)[N:].log_softmax(1)
    expected = _loss(cosines[:N], y) + _loss(cosines[N:], y)
    expected = expected - 0.3 * angles.gather(1, turns.unsqueeze(1)).mean()
    loss, _ = TrainingLoss(_config(rotation_weight=0.3), 0.0)(network, x, y)
    torch.testing.assert_close(loss, expected)


def test_margin_with_mixup(network, batch, monkeypatch):
    x, y = batch
    mixup = ManifoldMixup(network.backbone, 2.0, "cpu")
    monkeypatch.setattr(torch, "randint", lambda high, size: torch.tensor(0))  # mix the images
    loss, _ = TrainingLoss(_config(mixup=2.0), 0.0, mixup)(network, x, y)
    share, order = float(mixup._shares[0]), mixup.partners
    mixup._shares.fill_(1)
    features = network.backbone(share * x + (1 - share) * x[order])
    cosines = _cosines(features, network.head.weight)
    expected = share * _loss(cosines, y) + (1 - share) * _loss(cosines, y[order])
    torch.testing.assert_close(loss, expected)


def test_margin_does_not_change_what_a_teacher_sees(network, batch):
    x, y = batch
    torch.manual_seed(2)
    teacher = BaseClassifier(make_backbone("conv4"), CLASSES).eval()
    config = _config(distillation_weight=0.4, distillation_temperature=3.0)
    loss, _ = TrainingLoss(config, 0.0, None, teacher)(network, x, y)
    cosines = _cosines(network.backbone(x), network.head.weight)
    p, q = softmax(teacher(x)[0] / 3, 1), softmax(SCALE * cosines / 3, 1)
    divergence = (p * (p.log() - q.log())).sum(1).mean()
    torch.testing.assert_close(loss, 0.6 * _loss(cosines, y) + 0.4 * 9 * divergence)


TRAINED = {
    "batch_size": 8, "learning_rate": 0.05, "val_tasks": 10, "classifier": "cosine",
    "classifier_scaling": "per-class", "rotation_weight": 1.0, "mixup": 2.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_folders(tmp_path_factory.mktemp("images"), 4)


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    return train("folder", root, "conv4", out, epochs=2, settings=TRAINED, device="cpu")


def test_interrupted_run_resumes_to_the_same_classifier(trained, root, tmp_path, monkeypatch):
    def stop(record, n_epochs):
        raise InterruptedError

    arguments = {"epochs": 2, "settings": TRAINED, "device": "cpu"}
    with monkeypatch.context() as patch:
        patch.setattr(epochs.EpochRecord, "summary", stop)
        with pytest.raises(InterruptedError):
            train("folder", root, "conv4", tmp_path, **arguments)
    again = train("folder", root, "conv4", tmp_path, **arguments)
    ours, theirs = load_training(again.last).tensors, load_training(trained.last).tensors
    assert ours.keys() == theirs.keys() >= {"head.scale", "momentum.head.scale"}
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert load_checkpoint(again.last).digest == load_checkpoint(trained.last).digest


def test_cosine_classifier_teaches_from_its_checkpoint(trained, root, tmp_path):
    encoder = load_checkpoint(trained.last)
    assert encoder.classifier.keys() == {"weight", "scale"}
    assert encoder.classifier["scale"].shape == (4,)
    teacher = load_teacher(trained.last, TrainConfig(backbone="conv4")).network
    x = torch.randn(2, 3, 84, 84, generator=torch.Generator().manual_seed(0))
    cosines = _cosines(encoder.backbone(x), encoder.classifier["weight"])
    torch.testing.assert_close(teacher(x)[0], encoder.classifier["scale"] * cosines)
    small = {"batch_size": 8, "learning_rate": 0.05, "val_tasks": 10}
    student = train(
        "folder", root, "conv4", tmp_path / "student", recipe="neg-cosine", epochs=4,
        settings=small, teacher=trained.last, device="cpu",
    )  # fmt: skip
    assert student.records[-1].loss < 0.8 * student.records[0].loss
    assert load_checkpoint(student.last).classifier["scale"] == 30


def test_entropy_minimisation_needs_a_linear_classifier(trained):
    encoder = load_checkpoint(trained.last)
    linear = {"weight": encoder.classifier["weight"], "bias": torch.zeros(4)}
    for classifier, runs in ((encoder.classifier, False), (None, False), (linear, True)):
        checkpoint = dataclasses.replace(encoder, classifier=classifier)
        network = Network("folder", None, checkpoint, None)
        assert network.can_run(EntMin()) is runs
        assert network.can_run(FineTuning())


@pytest.mark.parametrize("wrong", ["scale of another length", "not a matrix", "other names"])
def test_damaged_cosine_classifier_is_named(wrong, trained, tmp_path):
    encoder = load_checkpoint(trained.last)
    weight, scale = encoder.classifier["weight"], encoder.classifier["scale"]
    tensors = {
        "scale of another length": {"weight": weight, "scale": scale[:2].clone()},
        "not a matrix": {"weight": weight[0].clone(), "scale": scale},
        "other names": {"weight": weight, "scales": scale},
    }[wrong]
    save_checkpoint(tmp_path, "conv4", encoder.backbone.state_dict(), classifier=tensors)
    with pytest.raises(DataError, match=r"not a linear or cosine classifier of 64 features"):
        load_checkpoint(tmp_path)


def test_recipes_are_valid_and_have_the_published_settings():
    configs = {name: resolve_config("resnet12", recipe=name) for name in RECIPES}
    assert json.dumps({name: config.to_json() for name, config in configs.items()})
    distill = configs["distill"]
    assert (distill.distillation_weight, distill.distillation_temperature) == (0.5, 4)
    assert (distill.batch_size, distill.weight_decay, distill.classifier) == (64, 5e-4, "linear")
    rates = [distill.learning_rate_at(epoch) for epoch in (0, 59, 60, 79, 80, 99)]
    assert rates == pytest.approx([0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005])
    neg = configs["neg-cosine"]
    assert (neg.classifier_scale, neg.classifier_scaling, neg.margin) == (30, "fixed", -0.02)
    rotation = configs["cc-rot"]
    assert (rotation.rotation_weight, rotation.classifier, rotation.margin) == (1, "cosine", 0)
    assert configs["baseline++"].classifier_scaling == "per-class"
    assert configs["bd-cspn"].classifier_scaling == "learned"
