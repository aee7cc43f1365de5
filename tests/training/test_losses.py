"""The loss of a training step, written out by hand for every combination of its terms."""

import pytest
import torch
from torch.nn.functional import log_softmax, softmax

from infoshot import InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.training import TrainConfig
from infoshot.training.base_classifier import BaseClassifier, load_teacher
from infoshot.training.losses import TrainingLoss, turn_quarters
from infoshot.training.manifold_mixup import ManifoldMixup

N, CLASSES = 10, 3


def _config(**settings):
    return TrainConfig(backbone="conv4", label_smoothing=0.0, **settings)


def _cross_entropy(logits, targets):
    return -(targets * log_softmax(logits, 1)).sum(1).mean()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 3, 16, 16, generator=generator)
    y = torch.randint(0, CLASSES, (N,), generator=generator)
    return x, y, torch.eye(CLASSES)[y]


@pytest.fixture
def network():
    torch.manual_seed(1)
    return BaseClassifier(make_backbone("conv4"), CLASSES, predicts_angle=True).train()


def test_quarters_are_turned_by_right_angles():
    x = torch.arange(9.0).view(1, 1, 3, 3).repeat(6, 1, 1, 1)
    turned, turns = turn_quarters(x)
    assert turns.tolist() == [0, 0, 1, 1, 2, 3]
    for image, angle in zip(turned, turns.tolist(), strict=True):
        # Turning back by hand: a corner moves to the next corner with every quarter turn.
        corners = [image[0, 0, 0], image[0, 2, 0], image[0, 2, 2], image[0, 0, 2]]
        assert [int(corners[(k + angle) % 4]) for k in range(4)] == [0, 6, 8, 2]


def test_rotation_adds_a_turned_copy_and_its_angle(network, batch):
    x, y, targets = batch
    turned = torch.stack([image.rot90(i, (1, 2)) for image, i in zip(x, _angles(), strict=True)])
    logits, angles = network(torch.cat((x, turned)))
    expected = (
        _cross_entropy(logits[:N], targets)
        + _cross_entropy(logits[N:], targets)
        + 0.3 * _cross_entropy(angles[N:], torch.eye(4)[_angles()])
    )
    loss, correct = TrainingLoss(_config(rotation_weight=0.3), 0.0)(network, x, y)
    torch.testing.assert_close(loss, expected)
    assert int(correct) == int((logits[N:].argmax(1) == y).sum())


def _angles():
    return torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3, 3])


@pytest.mark.parametrize("place", range(4))
def test_mixup_mixes_one_place_and_the_labels(network, batch, place, monkeypatch):
    x, y, targets = batch
    mixup = ManifoldMixup(network.backbone, 2.0, "cpu")
    monkeypatch.setattr(torch, "randint", lambda high, size: torch.tensor(place))
    torch.manual_seed(5)
    loss, _ = TrainingLoss(_config(mixup=2.0), 0.0, mixup)(network, x, y)
    share, order = float(mixup._shares[place]), mixup.partners
    assert 0 < share < 1
    assert sorted(order.tolist()) == list(range(N))
    maps = x
    for number, stage in enumerate(network.backbone.blocks):
        if number == place:
            maps = share * maps + (1 - share) * maps[order]
        maps = _without_hooks(stage, maps)
    logits = network.head(maps.mean((2, 3)))
    mixed = share * targets + (1 - share) * targets[order]
    torch.testing.assert_close(loss, _cross_entropy(logits, mixed))


def _without_hooks(stage, maps):
    for layer in stage:
        maps = layer(maps)
    return maps


def test_turned_copies_are_not_mixed(network, batch):
    x, y, _ = batch
    mixup = ManifoldMixup(network.backbone, 2.0, "cpu")
    TrainingLoss(_config(mixup=2.0, rotation_weight=1.0), 0.0, mixup)(network, x, y)
    assert mixup.partners[N:].tolist() == list(range(N, 2 * N))
    assert sorted(mixup.partners[:N].tolist()) == list(range(N))


def test_mixup_does_nothing_in_evaluation(network, batch):
    x, *_ = batch
    network.eval()
    expected = network(x)[0]
    mixup = ManifoldMixup(network.backbone, 2.0, "cpu")
    mixup.draw(N, N)
    torch.testing.assert_close(network(x)[0], expected)


def test_inactive_mixup_is_the_plain_loss(network, batch):
    x, y, targets = batch
    expected = _cross_entropy(network(x)[0], targets)
    mixup = ManifoldMixup(network.backbone, 2.0, "cpu")
    mixup.active = False
    loss, _ = TrainingLoss(_config(mixup=2.0), 0.0, mixup)(network, x, y)
    torch.testing.assert_close(loss, expected)


def test_share_and_place_have_their_distributions(network):
    mixup = ManifoldMixup(network.backbone, 2.0, "cpu")
    torch.manual_seed(0)
    shares, places = [], []
    for _ in range(4000):
        shares.append(float(mixup.draw(4, 4)))
        places.append(int((mixup._shares != 1).nonzero()[0]))
    assert torch.tensor(shares).mean().item() == pytest.approx(0.5, abs=0.01)
    assert torch.tensor(shares).var().item() == pytest.approx(1 / 20, rel=0.06)  # of Beta(2, 2)
    assert torch.tensor(places).bincount().tolist() == pytest.approx([1000] * 4, rel=0.1)


def test_distillation_adds_the_softened_divergence(network, batch):
    x, y, targets = batch
    torch.manual_seed(2)
    teacher = BaseClassifier(make_backbone("conv4"), CLASSES).eval()
    config = _config(distillation_weight=0.4, distillation_temperature=3.0)
    loss, _ = TrainingLoss(config, 0.0, None, teacher)(network, x, y)
    logits, taught = network(x)[0], teacher(x)[0]
    p, q = softmax(taught / 3, 1), softmax(logits / 3, 1)
    divergence = (p * (p.log() - q.log())).sum(1).mean()
    expected = 0.6 * _cross_entropy(logits, targets) + 0.4 * 9 * divergence
    torch.testing.assert_close(loss, expected)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_teacher_and_mixup_exclude_each_other(tmp_path):
    with pytest.raises(InvalidArgumentError, match="mixup must be 0 with a teacher"):
        load_teacher(tmp_path, _config(mixup=1.0))
