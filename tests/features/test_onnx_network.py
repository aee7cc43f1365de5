"""Networks of the package by ONNX Runtime: the features of PyTorch, kept exports, the fallback."""

import os
import signal

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from infoshot.backbones import BACKBONES, Encoder, make_backbone, open_encoder
from infoshot.core.cache_folder import default_cache_folder
from infoshot.core.progress import Progress
from infoshot.features import onnx_network
from infoshot.features.encoding import encode_batch, encode_batches
from infoshot.features.onnx_network import NotExportedError, is_exportable, open_session

LITE = {"efficientnet-lite0": 224, "efficientnet-lite2": 260}
SIZES = {"conv4": 84, "resnet12": 40, "resnet18": 40, "wrn28-10": 16, **dict.fromkeys(LITE, 64)}
PARTS = ("onnx_network._export", "onnx_network._start", "onnx_network._compare")


class Lines(Progress):
    """Keeps what is said."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, sentence):
        self.lines.append(sentence)


def make_encoder(name, digest="1" * 64):
    torch.manual_seed(0)
    network = make_backbone(name)
    with torch.no_grad():  # statistics as after a training
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 2)
    return Encoder(name, network.eval(), digest)


def draw_crops(n, side):
    return list(np.random.default_rng(1).integers(0, 256, (n, side, side, 3), np.uint8))


def encode(encoder, crops, progress=None):
    batches = encode_batches(
        iter(crops), encoder, crop=len(crops[0]), batch_size=2, progress=progress or Lines()
    )
    return torch.cat(list(batches))


def by_pytorch(encoder, crops):
    with torch.inference_mode():
        images = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2)
        return encode_batch(encoder.backbone, images)


def kept_files():
    return sorted((default_cache_folder() / onnx_network.FOLDER).glob("*"))


@pytest.fixture
def exports(monkeypatch):
    """One entry for every export."""
    made, export = [], onnx_network._export

    def count(backbone, crop):
        made.append(crop)
        return export(backbone, crop)

    monkeypatch.setattr("infoshot.features.onnx_network._export", count)
    return made


@pytest.mark.parametrize("name", LITE)
def test_padding_is_a_part_of_the_convolutions(name, tmp_path):
    # Padding of its own takes almost half of the time, since ONNX Runtime reorders the maps for it.
    content = onnx_network._export(make_encoder(name).backbone, 64)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(tmp_path / "optimised.onnx").graph.node
    assert {node.op_type for node in nodes} >= {"Conv"}
    assert not {node.op_type for node in nodes} & {"Pad", "Shape"}


@pytest.mark.parametrize("name", BACKBONES)
def test_features_are_those_of_pytorch(name):
    encoder, crops, lines = make_encoder(name), draw_crops(3, SIZES[name]), Lines()
    found, expected = encode(encoder, crops, lines), by_pytorch(encoder, crops)
    assert ((found - expected).norm(dim=1) < 1e-5 * expected.norm(dim=1)).all()
    assert not lines.lines
    assert len(kept_files()) == 1


@pytest.mark.parametrize(("name", "side"), LITE.items())
def test_features_of_the_pretrained_networks_are_those_of_pytorch(name, side):
    encoder, crops = open_encoder(name), draw_crops(2, side)
    found, expected = encode(encoder, crops), by_pytorch(encoder, crops)
    assert ((found - expected).norm(dim=1) < 1e-4 * expected.norm(dim=1)).all()


def test_a_network_is_exported_once(exports):
    crops = draw_crops(3, 32)
    first, again = make_encoder("conv4"), make_encoder("conv4")
    features = encode(first, crops)
    assert torch.equal(encode(first, crops), features)
    assert torch.equal(encode(again, crops), features)
    assert exports == [32]
    encode(first, draw_crops(1, 48))
    assert exports == [32, 48]


def test_other_weights_are_another_network(exports):
    first, other = make_encoder("conv4"), make_encoder("conv4", digest="2" * 64)
    with torch.no_grad():
        next(other.backbone.parameters()).mul_(2)
    crops = draw_crops(2, 32)
    assert not torch.allclose(encode(first, crops), encode(other, crops))
    assert len(exports) == len(kept_files()) == 2


@pytest.mark.parametrize("digest", ["1" * 64, ""])
def test_a_network_whose_weights_change_is_exported_again(digest):
    first, crops = make_encoder("conv4", digest), draw_crops(2, 32)
    features = encode(first, crops)
    with torch.no_grad():
        next(first.backbone.parameters()).mul_(2)
    changed = Encoder("conv4", first.backbone, "2" * 64 if digest else "")
    found = encode(changed, crops)
    assert not torch.allclose(found, features)
    torch.testing.assert_close(found, by_pytorch(changed, crops))


@pytest.mark.parametrize("damage", [b"", b"damaged", None])
def test_a_damaged_file_is_made_again(exports, damage):
    crops = draw_crops(2, 32)
    features = encode(make_encoder("conv4"), crops)
    (path,) = kept_files()
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:-100] if damage is None else damage)
    assert torch.equal(encode(make_encoder("conv4"), crops), features)
    assert len(exports) == 2
    assert path.read_bytes() == content


def test_a_cache_that_others_can_write_to_is_not_used(exports):
    encode(make_encoder("conv4"), draw_crops(2, 32))
    folder = default_cache_folder() / onnx_network.FOLDER
    folder.chmod(0o777)
    encode(make_encoder("conv4"), draw_crops(2, 32))
    assert len(exports) == 2
    assert len(kept_files()) == 1


def test_features_are_computed_without_a_cache_folder(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("INFOSHOT_CACHE", str(file / "below"))
    encoder, crops = make_encoder("conv4"), draw_crops(2, 32)
    torch.testing.assert_close(encode(encoder, crops), by_pytorch(encoder, crops))


@pytest.mark.parametrize("part", PARTS)
def test_a_network_that_cannot_be_exported_runs_by_pytorch(monkeypatch, part):
    def fail(*_):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(f"infoshot.features.{part}", fail)
    encoder, crops, lines = make_encoder("conv4"), draw_crops(2, 32), Lines()
    assert torch.equal(encode(encoder, crops, lines), by_pytorch(encoder, crops))
    (line,) = lines.lines
    assert line == "encoding by PyTorch, which is slower: the export failed with RuntimeError"
    assert not kept_files()


def test_an_interrupt_within_the_export_is_not_taken_for_its_failure(monkeypatch):
    """The exporter turns it into another error; features of PyTorch must not follow."""

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)
        raise RuntimeError("KeyboardInterrupt: <EMPTY MESSAGE>")

    monkeypatch.setattr(onnx_network, "_export", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encode(make_encoder("conv4", "9" * 64), draw_crops(2, 40))


def test_an_export_with_other_features_is_not_used(monkeypatch):
    export = onnx_network._export

    def export_another(backbone, crop):
        return export(make_backbone("conv4").eval(), crop)

    monkeypatch.setattr("infoshot.features.onnx_network._export", export_another)
    with pytest.raises(NotExportedError, match="gives other features"):
        open_session(make_encoder("conv4"), 32)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_pytorch_runs(monkeypatch, package):
    real = onnx_network.importlib.import_module

    def missing(name):
        if name == package:
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(onnx_network.importlib, "import_module", missing)
    encoder, crops, lines = make_encoder("conv4"), draw_crops(2, 32), Lines()
    assert torch.equal(encode(encoder, crops, lines), by_pytorch(encoder, crops))
    assert lines.lines == [
        "encoding by PyTorch, which is slower: onnx and onnxruntime cannot be imported"
    ]


def test_networks_of_the_user_run_by_pytorch():
    class Own(nn.Module):
        def forward(self, images):
            return images.mean((2, 3))

    encoder, lines = open_encoder(Own()), Lines()
    assert not is_exportable(encoder.backbone)
    assert encode(encoder, draw_crops(3, 32), lines).shape == (3, 3)
    assert not lines.lines
    assert not kept_files()


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_kept_networks_are_private():
    encode(make_encoder("conv4"), draw_crops(2, 32))
    folder = default_cache_folder() / onnx_network.FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
