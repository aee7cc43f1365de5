"""Scales and shifts of convolutions, and the ordinary networks that they fold into."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from infoshot import InvalidArgumentError
from infoshot.backbones import Backbone, InputSpec, make_backbone
from infoshot.training.episodic.head import Episodes
from infoshot.training.episodic.mtl import Mtl
from infoshot.training.episodic.scale_shift import add_scale_shift, fold_scale_shift

NETWORKS = ("conv4", "resnet12", "resnet18", "wrn28-10")
SMALL = InputSpec(crop=16, resize=16)


def _network(name):
    """A network with statistics of batch normalisation that are not the initial ones."""
    torch.manual_seed(0)
    network = make_backbone(name).eval()
    network.input_spec = SMALL
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0.0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return network


def _move(network):
    with torch.no_grad():
        for value in network.parameters():
            if value.requires_grad:
                value += 0.1 * torch.randn_like(value)


@pytest.mark.parametrize("name", NETWORKS)
def test_folded_network_is_plain_and_computes_the_same(name):
    network, images = _network(name), torch.randn(2, 3, 16, 16)
    plain = copy.deepcopy(network)
    add_scale_shift(network)
    with torch.no_grad():
        assert torch.equal(network(images), plain(images))
        _move(network)
        expected = network(images)
        folded = fold_scale_shift(network)
        assert_close(folded(images), expected, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(expected, plain(images), rtol=0.1)
        assert torch.equal(network(images), expected)
    assert [*folded.state_dict()] == [*plain.state_dict()]
    plain.load_state_dict(folded.state_dict())
    assert torch.equal(plain(images), folded(images))


@pytest.mark.parametrize("name", ["conv4", "resnet12"])
def test_only_scales_and_shifts_learn(name):
    network, images = _network(name), torch.randn(2, 3, 16, 16)
    add_scale_shift(network)
    network(images).square().sum().backward()
    learnt = {name for name, value in network.named_parameters() if value.requires_grad}
    assert {name.rsplit(".", 1)[1] for name in learnt} == {"scale", "shift"}
    assert len(learnt) == 2 * sum(isinstance(m, nn.Conv2d) for m in network.modules())
    for name, value in network.named_parameters():
        assert (value.grad is not None and bool(value.grad.any())) == (name in learnt), name


def test_scales_belong_to_kernels_and_shifts_to_filters():
    """Formula (W o Phi_1) * x + b + Phi_2 on one convolution with bias."""
    network = _Tiny(bias=True)
    conv = copy.deepcopy(network.conv)
    add_scale_shift(network)
    _move(network)
    scale, shift = network.conv.scale, network.conv.shift
    assert scale.shape == (4, 3, 1, 1)
    images = torch.randn(2, 3, 8, 8)
    expected = nn.functional.conv2d(images, conv.weight * scale, conv.bias + shift.flatten())
    assert_close(network.conv(images), expected)


class _Tiny(Backbone):
    """A network that defines its batch normalisation first."""

    feature_dim = 4
    input_spec = InputSpec(crop=8, resize=8)

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(3, 4, 3, bias=bias)

    def forward(self, images):
        return self.norm(self.conv(images)).relu().mean((2, 3))


def test_shifts_that_have_no_place_are_refused():
    network = _Tiny(bias=False)
    add_scale_shift(network)
    _move(network)
    message = "backbone must define the batch normalisation right after the convolution"
    with pytest.raises(InvalidArgumentError, match=message):
        fold_scale_shift(network)
    network = _Tiny(bias=True).eval()
    add_scale_shift(network)
    _move(network)
    images = torch.randn(2, 3, 8, 8)
    assert_close(fold_scale_shift(network)(images), network(images))


def test_scales_and_shifts_learn_with_the_classifier():
    """Episodes of images whose classes are textures; the folded network keeps the predictions."""
    torch.manual_seed(0)
    network, head = make_backbone("conv4").eval(), Mtl(64, 5, n_way=2, n_steps=5)
    add_scale_shift(network)
    textures = torch.randn(2, 3, 16, 16)
    y = torch.tensor([[0, 1, 0, 1, 0, 1, 0, 1]])
    images = textures[y[0]] + 2 * torch.randn(8, 3, 16, 16)
    learnt = [value for value in network.parameters() if value.requires_grad]
    optimiser = torch.optim.Adam([*learnt, *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(8):
        z = network(images).unsqueeze(0)
        episodes = Episodes(z[:, :2], y[:, :2], z[:, 2:], y[:, 2:], torch.tensor([[0, 1]]))
        loss, log_p = head.loss(episodes)
        optimiser.zero_grad()
        loss.backward()
        losses.append(loss.item())
        folded = fold_scale_shift(network)(images).unsqueeze(0)
        assert_close(head.log_posterior(folded[:, :2], y[:, :2], folded[:, 2:], 2), log_p)
        optimiser.step()
    assert losses[-1] < 0.9 * losses[0]
