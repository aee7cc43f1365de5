"""Entropy minimisation as published, against its steps written out in plain PyTorch."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own habit
from torch import nn

from infoshot import InvalidArgumentError
from infoshot.backbones import make_backbone
from infoshot.metrics import accuracy
from infoshot.reproduction.adaptation import FineTuner
from infoshot.reproduction.ent_min import BaseLogits, EntMin
from infoshot.tasks.image_tasks import ImageTask

N_BASE = 20


@pytest.fixture(scope="module")
def backbone():
    """Return a Conv-4 in float64 whose running statistics match no batch."""
    torch.manual_seed(0)
    network = make_backbone("conv4").double().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2)
    return network


@pytest.fixture(scope="module")
def head(backbone):
    torch.manual_seed(1)
    return nn.Linear(backbone.feature_dim, N_BASE).double().state_dict()


@pytest.fixture(scope="module")
def task():
    """Three classes of coloured noise, with unequal numbers of examples."""
    generator = torch.Generator().manual_seed(0)
    y_sup, y_qry = torch.tensor([0, 0, 1, 2, 2]), torch.arange(3).repeat_interleave(4)

    def images(labels):
        noise = torch.randint(0, 150, (len(labels), 3, 20, 20), generator=generator)
        noise[torch.arange(len(labels)), labels] += 100
        return noise.byte()

    return ImageTask(images(y_sup), y_sup, images(y_qry), 3), y_qry


def step_by_step(backbone, head, task, n_epochs, learning_rate):
    """The published procedure, one statement at a time."""
    network = nn.Sequential(copy.deepcopy(backbone), nn.Linear(backbone.feature_dim, N_BASE))
    network.double()[1].load_state_dict(head)
    spec = backbone.input_spec
    x_s, x_q = (spec.normalise(x.float() / 255).double() for x in (task.x_sup, task.x_qry))

    network.eval()
    classifier = nn.Linear(N_BASE, task.n_way).double()
    with torch.no_grad():
        logits = network(x_s).clamp(min=0)
        for k in range(task.n_way):
            mean = logits[task.y_sup == k].mean(0)
            classifier.weight[k] = mean / mean.norm()
        classifier.bias.zero_()

    def scores(x):
        features = network(x).clamp(min=0)
        return classifier(features / features.norm(dim=1, keepdim=True))

    adam = torch.optim.Adam([*network.parameters(), *classifier.parameters()], lr=learning_rate)
    network.train()
    for _ in range(n_epochs):
        adam.zero_grad()
        F.cross_entropy(scores(x_s), task.y_sup).backward()
        adam.step()
        adam.zero_grad()
        p = scores(x_q).softmax(1)
        (-(p * p.log()).sum(1).mean()).backward()
        adam.step()
    network.eval()
    return scores(x_q).softmax(1).detach()


@pytest.mark.parametrize("n_epochs", [0, 1, 3])
def test_epochs_equal_the_published_procedure(n_epochs, backbone, head, task):
    # A large step, so that the answer is far from that of one more epoch.
    setting = EntMin(n_steps=n_epochs, learning_rate=1e-3)
    ours = FineTuner(BaseLogits(backbone, head), setting)(task[0])
    torch.testing.assert_close(
        ours, step_by_step(backbone, head, task[0], n_epochs, 1e-3), atol=1e-6, rtol=0
    )
    more = step_by_step(backbone, head, task[0], n_epochs + 1, 1e-3)
    assert (ours - more).abs().max() > 1e-3


def test_the_defaults_are_the_published_ones(backbone, head, task):
    assert dataclasses.asdict(EntMin()) == {
        "n_steps": 25, "learning_rate": 5e-5, "entropy_weight": 1.0,
    }  # fmt: skip
    p = FineTuner(BaseLogits(backbone, head), EntMin())(task[0])
    torch.testing.assert_close(
        p, step_by_step(backbone, head, task[0], 25, 5e-5), atol=1e-6, rtol=0
    )
    assert accuracy(p[None], task[1][None]) > 0.5


def test_the_network_does_not_change(backbone, head, task):
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    state = torch.get_rng_state()
    FineTuner(BaseLogits(backbone, head), EntMin(n_steps=1))(task[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


def test_a_task_does_not_depend_on_earlier_tasks(backbone, head, task):
    other = dataclasses.replace(task[0], x_sup=task[0].x_sup.flip(-1), x_qry=task[0].x_qry.flip(-1))
    fine_tuner = FineTuner(BaseLogits(backbone, head), EntMin(n_steps=2))
    first = fine_tuner(task[0])
    assert not torch.equal(fine_tuner(other), first)
    assert torch.equal(fine_tuner(task[0]), first)


def test_bad_settings_raise(backbone, head):
    for changes, message in (
        ({"n_steps": -1}, "EntMin: n_steps must be a whole number of at least 0; got -1"),
        ({"learning_rate": 0.0}, "EntMin: learning_rate must be a finite number above 0"),
        ({"entropy_weight": 0.0}, "EntMin: entropy_weight must be a finite number above 0"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            FineTuner(BaseLogits(backbone, head), EntMin(**changes))
