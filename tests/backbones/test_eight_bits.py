"""Weights in 8 bits: what is rounded, by how much, and what a damaged file gives."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file

from infoshot import DataError
from infoshot.backbones import make_backbone
from infoshot.backbones.backbone import weights_content
from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint
from infoshot.backbones.eight_bits import quantise_weights, restore_weights


@pytest.fixture(scope="module")
def resnet18():
    torch.manual_seed(0)
    return make_backbone("resnet18").eval()


def test_weights_are_rounded_to_127_steps_of_the_largest_in_their_channel():
    weight = torch.randn(6, 8, 11, 11, dtype=torch.float64)
    weight[2] = 0
    restored = restore_weights(quantise_weights({"weight": weight}))["weight"].double().numpy()
    for channel, given in zip(restored, weight.numpy(), strict=True):
        step = np.abs(given).max() / 127
        assert np.abs(channel - given).max() <= step * 0.5001
        assert np.abs(channel).max() == pytest.approx(np.abs(given).max())


def test_only_large_convolutions_are_rounded(resnet18):
    stored = quantise_weights(resnet18.state_dict())
    rounded = {name for name, value in stored.items() if value.dtype == torch.int8}
    convolutions = {name for name, value in resnet18.state_dict().items() if value.dim() == 4}
    assert rounded == convolutions - {"conv1.weight"}
    for name, value in resnet18.state_dict().items():
        if name not in rounded:
            assert torch.equal(stored[name], value), name


def test_checkpoint_in_8_bits_is_read_as_any_other(resnet18, tmp_path):
    about = {"class_names": ("a", "b"), "config": {"dataset": "cub"}, "epoch": 3}
    about["classifier"] = {"weight": torch.rand(2, 512), "bias": torch.rand(2)}
    digest = save_checkpoint(
        tmp_path, "resnet18", resnet18.state_dict(), dtype=torch.int8, chosen_as="last", **about
    )
    (file,) = tmp_path.glob("weights-*.safetensors")
    n_weights = sum(value.numel() for value in resnet18.parameters())
    assert n_weights < file.stat().st_size < 1.02 * n_weights
    encoder = load_checkpoint(tmp_path)
    assert (encoder.digest, encoder.epoch, encoder.chosen_as) == (digest, 3, "last")
    assert (encoder.trained_on, encoder.class_names) == ("cub", ("a", "b"))
    assert torch.equal(encoder.classifier["weight"], about["classifier"]["weight"])
    images = torch.rand(4, 3, 84, 84)
    with torch.no_grad():
        exact, rounded = resnet18(images), encoder.backbone(images)
    assert not torch.equal(exact, rounded)
    assert (exact - rounded).norm() < 0.02 * exact.norm()


def test_storing_8_bits_again_changes_nothing(resnet18, tmp_path):
    save_checkpoint(tmp_path / "a", "resnet18", resnet18.state_dict(), dtype=torch.int8)
    weights = load_checkpoint(tmp_path / "a").backbone.state_dict()
    save_checkpoint(tmp_path / "b", "resnet18", weights, dtype=torch.int8)
    first, second = (
        load_file(next((tmp_path / name).glob("weights-*.safetensors"))) for name in "ab"
    )
    assert first.keys() == second.keys()
    for name, value in first.items():
        if value.dtype == torch.int8:
            assert torch.equal(value, second[name]), name
        else:
            torch.testing.assert_close(value, second[name], rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [torch.ones(7), torch.ones(6, 1), torch.ones(6).int()])
def test_scales_must_fit_their_weights(scale):
    stored = quantise_weights({"trunk.weight": torch.randn(6, 8, 11, 11)})
    with pytest.raises(ValueError, match=r"'trunk\.weight' must have one scale per output channel"):
        restore_weights({**stored, "trunk.weight/scale": scale})


def test_other_weights_are_restored_as_they_are():
    stored = {"gate/scale": torch.ones(3), "table": torch.ones(3).to(torch.int8)}
    restored = restore_weights(stored)
    assert restored.keys() == stored.keys()
    assert all(restored[name] is value for name, value in stored.items())


def test_checkpoint_with_wrong_scales_is_refused_in_one_sentence(resnet18, tmp_path, monkeypatch):
    def break_scales(weights):
        stored = load(weights_content(quantise_weights(weights)))
        return {**stored, "layer1.0.conv1.weight/scale": torch.ones(3)}

    monkeypatch.setattr("infoshot.backbones.checkpoints.quantise_weights", break_scales)
    save_checkpoint(tmp_path, "resnet18", resnet18.state_dict(), dtype=torch.int8)
    with pytest.raises(DataError, match=r"damaged \('layer1\.0\.conv1\.weight' must have one"):
        load_checkpoint(tmp_path)
