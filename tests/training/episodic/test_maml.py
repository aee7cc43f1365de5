"""MAML against complex steps in NumPy, against plain PyTorch, and on tasks that need adaptation."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear

from infoshot import InvalidArgumentError
from infoshot.backbones import Backbone, InputSpec, make_backbone
from infoshot.training.episodic.head import Episodes
from infoshot.training.episodic.maml import Maml
from tests.reference import systems_maml_numpy as reference

N_TASKS, N_WAY, SIZE, CHANNELS = 2, 3, 5, 2


class TinyNet(Backbone):
    """One convolution, batch normalisation, ReLU, average over the image."""

    input_spec = InputSpec()

    def __init__(self, feature_dim: int = CHANNELS) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.conv = nn.Conv2d(3, feature_dim, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(feature_dim)

    def forward(self, images):
        return self.norm(self.conv(images)).relu().mean((2, 3))


def _system(step_size=0.3, seed=0):
    torch.manual_seed(seed)
    backbone, head = TinyNet().double(), Maml(CHANNELS, 4, n_way=N_WAY, step_size=step_size)
    nn.init.normal_(backbone.norm.weight, 1.0, 0.2)
    nn.init.normal_(backbone.norm.bias, 0.0, 0.2)
    head.attach(backbone)
    return backbone, head.double()


def _episodes(seed=0):
    """Episodes of 1, 2 and 2 shots and two queries per class."""
    generator = torch.Generator().manual_seed(seed)
    y_sup = torch.tensor([[0, 1, 1, 2, 2], [2, 1, 0, 2, 1]])
    y_qry = torch.arange(N_WAY).repeat(N_TASKS, 2)
    centres = torch.randn(N_TASKS, N_WAY, 3, SIZE, SIZE, generator=generator).double()
    z_sup, z_qry = (
        torch.stack([centre[labels] for centre, labels in zip(centres, y, strict=True)])
        for y in (y_sup, y_qry)
    )
    noise = torch.randn(z_sup.shape, generator=generator).double()
    return Episodes(z_sup + noise, y_sup, z_qry, y_qry, torch.arange(N_WAY).repeat(N_TASKS, 1))


def _numbers(backbone, head):
    """The parameters as the reference names them."""
    values = {
        "conv": backbone.conv.weight,
        "scale": backbone.norm.weight,
        "shift": backbone.norm.bias,
        "weight": head.classifier.weight,
        "bias": head.classifier.bias,
    }
    return {name: value.detach().numpy().copy() for name, value in values.items()}


def _tasks(episodes):
    parts = (episodes.z_sup, episodes.y_sup, episodes.z_qry, episodes.y_qry)
    return list(zip(*(part.numpy() for part in parts), strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_maml_agrees_with_complex_steps(training):
    backbone, head = _system()
    head.train(training)
    episodes = _episodes()
    with torch.no_grad():
        log_p = head.log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
    for row, (*support, x_qry, _) in zip(log_p, _tasks(episodes), strict=True):
        steps = {"step_size": 0.3, "n_steps": 5 if training else 10}
        expected = reference.maml(_numbers(backbone, head), *support, x_qry, **steps)
        np.testing.assert_allclose(row.numpy(), expected, rtol=0, atol=1e-12)


def test_outer_gradient_is_the_query_gradient_at_the_adapted_parameters():
    backbone, head = _system()
    episodes = _episodes()
    loss, _ = head.loss(episodes)
    loss.backward()
    start = _numbers(backbone, head)
    expected = reference.outer_gradient(start, _tasks(episodes), step_size=0.3, n_steps=5)
    for name, value in {
        "conv": backbone.conv.weight,
        "scale": backbone.norm.weight,
        "shift": backbone.norm.bias,
        "weight": head.classifier.weight,
        "bias": head.classifier.bias,
    }.items():
        np.testing.assert_allclose(value.grad.numpy(), expected[name], rtol=0, atol=1e-12)


def test_parameters_after_one_outer_step_agree_with_plain_pytorch():
    """Adam on gradients that are collected by hand, without ``torch.func``."""
    backbone, head = _system()
    episodes = _episodes()
    plain = [
        copy.deepcopy(value)
        for value in (*backbone.parameters(), head.classifier.weight, head.classifier.bias)
    ]

    def scores(values, x):
        conv, scale, shift, weight, bias = values
        maps = batch_norm(conv2d(x, conv, padding=1), None, None, scale, shift, training=True)
        return linear(maps.relu().mean((2, 3)), weight, bias)

    for value in plain:
        value.grad = torch.zeros_like(value)
    for task in range(N_TASKS):
        values = [value.detach().requires_grad_() for value in plain]
        for _ in range(5):
            loss = cross_entropy(scores(values, episodes.z_sup[task]), episodes.y_sup[task])
            steps = torch.autograd.grad(loss, values)
            values = [
                (value - 0.3 * step).detach().requires_grad_()
                for value, step in zip(values, steps, strict=True)
            ]
        loss = cross_entropy(scores(values, episodes.z_qry[task]), episodes.y_qry[task])
        for value, gradient in zip(plain, torch.autograd.grad(loss, values), strict=True):
            value.grad += gradient / N_TASKS
    torch.optim.Adam(plain, lr=1e-3).step()

    optimiser = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=1e-3)
    head.loss(episodes)[0].backward()
    optimiser.step()
    ours = (*backbone.parameters(), head.classifier.weight, head.classifier.bias)
    for value, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


def test_batch_equals_a_loop_and_queries_keep_their_order():
    _, head = _system()
    episodes = _episodes()
    z_sup, y_sup, z_qry = episodes.z_sup, episodes.y_sup, episodes.z_qry
    whole = head.eval().log_posterior(z_sup, y_sup, z_qry, N_WAY)
    for task in range(N_TASKS):
        one = slice(task, task + 1)
        alone = head.log_posterior(z_sup[one], y_sup[one], z_qry[one], N_WAY)
        torch.testing.assert_close(alone, whole[one], rtol=0, atol=1e-12)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = head.log_posterior(z_sup, y_sup, z_qry[:, order], N_WAY)
    torch.testing.assert_close(shuffled, whole[:, order], rtol=0, atol=1e-12)


def test_relabelling_classes_and_classifier_permutes_columns():
    """The initial classifier tells the classes apart, so its rows move with the labels."""
    _, head = _system()
    episodes = _episodes()
    z_sup, y_sup, z_qry = episodes.z_sup, episodes.y_sup, episodes.z_qry
    log_p = head.eval().log_posterior(z_sup, y_sup, z_qry, N_WAY)
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        head.classifier.weight.copy_(head.classifier.weight[order])
    moved = head.log_posterior(z_sup, order.argsort()[y_sup], z_qry, N_WAY)
    torch.testing.assert_close(moved, log_p[..., order], rtol=0, atol=1e-12)


def test_queries_share_batch_statistics():
    """Declared transductive: a single query is classified differently without the others."""
    _, head = _system()
    episodes = _episodes()
    z_sup, y_sup, z_qry = episodes.z_sup, episodes.y_sup, episodes.z_qry
    together = head.eval().log_posterior(z_sup, y_sup, z_qry, N_WAY)[:, :1]
    alone = head.log_posterior(z_sup, y_sup, z_qry[:, :1], N_WAY)
    assert head.transductive
    assert (together - alone).abs().max() > 0.01


def test_backbone_is_neither_saved_with_the_head_nor_changed():
    backbone, head = _system()
    before = copy.deepcopy(backbone.state_dict())
    backbone.requires_grad_(False).eval()
    episodes = _episodes()
    with torch.inference_mode():
        head.eval().log_posterior(episodes.z_sup, episodes.y_sup, episodes.z_qry, N_WAY)
    assert set(head.state_dict()) == {"classifier.weight", "classifier.bias"}
    assert len(list(head.parameters())) == 2
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name])
    assert not backbone.training


def test_maml_says_what_it_needs():
    head = Maml(CHANNELS, 4)
    images = torch.zeros(1, 5, 3, SIZE, SIZE)
    labels = torch.arange(5).unsqueeze(0)
    with pytest.raises(InvalidArgumentError, match=r"does not have; call attach\(backbone\) first"):
        head.log_posterior(images, labels, images, 5)
    head.attach(TinyNet())
    with pytest.raises(InvalidArgumentError, match=r"n_way must be 5 .*; got 4\."):
        head.log_posterior(images, labels, images, 4)
    with pytest.raises(InvalidArgumentError, match="step_size must be a finite number"):
        Maml(CHANNELS, 4, step_size=0)


def test_registered_backbones_adapt_in_float32():
    backbone = make_backbone("resnet12").eval()
    head = Maml(backbone.feature_dim, 4, n_way=2, n_test_steps=1).eval()
    head.attach(backbone)
    torch.manual_seed(0)
    images, labels = torch.randn(1, 2, 3, 16, 16), torch.tensor([[0, 1]])
    first, second = (head.log_posterior(images, labels, images, 2) for _ in range(2))
    assert first.dtype == torch.float32
    torch.testing.assert_close(first.exp().sum(-1), torch.ones(1, 2))
    assert torch.equal(first, second)


def _colours(n_tasks, generator):
    """Two classes that differ in the first channel, among larger differences in the others."""
    y = torch.arange(2).repeat(n_tasks, 6)
    means = torch.randn(n_tasks, 12, 3, generator=generator) * torch.tensor([0.3, 3.0, 3.0])
    means[..., 0] += torch.randn(n_tasks, 2, generator=generator).gather(1, y)
    images = means[..., None, None] + torch.randn(n_tasks, 12, 3, 4, 4, generator=generator)
    classes = torch.arange(2).repeat(n_tasks, 1)
    return Episodes(images[:, :4], y[:, :4], images[:, 4:], y[:, 4:], classes)


def test_training_learns_what_to_adapt():
    torch.manual_seed(0)
    backbone, head = TinyNet(8), Maml(8, 2, n_way=2, step_size=0.3)
    head.attach(backbone)
    novel, generator = _colours(50, torch.Generator().manual_seed(1)), torch.Generator()
    optimiser = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=0.02)
    accuracy = []
    for n_steps in (0, 40):
        head.train()
        for _ in range(n_steps):
            loss, _ = head.loss(_colours(4, generator))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            log_p = head.eval().log_posterior(novel.z_sup, novel.y_sup, novel.z_qry, 2)
        accuracy.append(float((log_p.argmax(-1) == novel.y_qry).double().mean()))
    assert accuracy[1] > accuracy[0] + 0.1
