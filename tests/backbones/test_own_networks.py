"""Networks from outside the package: modules, references, entry points, and their checkpoints."""

import importlib
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from torch import nn

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import Backbone, InputSpec, make_backbone, open_encoder
from infoshot.backbones.checkpoints import load_checkpoint, save_checkpoint
from tests.encoders import extract_features, make_split, network_inputs, one_sentence

NETS = """
import torch
from torch import nn
from infoshot.backbones import InputSpec

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(3, 5, 3, stride=2)
        self.fc = nn.Linear(5, 6)
        self.input_spec = InputSpec(crop=32, resize=40, mean=(0.5, 0.5, 0.5), std=(1.0, 1.0, 1.0))

    def forward(self, x):
        return self.fc(self.body(x).relu().mean((2, 3)))

def make_net():
    return Net()

net = Net()
text = "not a network"

def raises():
    raise RuntimeError("no weights here")

def returns_text():
    return "not a network"

def returns_images():
    return nn.Conv2d(3, 4, 3)

class Several(Net):
    def forward(self, x):
        return x.mean((2, 3)), x

class Whole(Net):
    def forward(self, x):
        return x.mean((2, 3)).long()

class WrongInput(Net):
    def __init__(self):
        super().__init__()
        self.input_spec = 32

class Small(Net):
    def forward(self, x):
        raise ValueError("images are too small. Use larger ones.")
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The module ``my_nets`` in a folder that Python imports from; returns its path."""
    path = tmp_path / "nets" / "my_nets.py"
    path.parent.mkdir()
    path.write_text(NETS)
    monkeypatch.syspath_prepend(path.parent)
    yield path
    sys.modules.pop("my_nets", None)


@pytest.fixture
def split(tmp_path):
    root = tmp_path / "photos"
    root.mkdir()
    return make_split(root)


@pytest.mark.parametrize("name", ["my_nets:make_net", "my_nets:Net", "my_nets:net"])
def test_references_are_opened(name, nets, split):
    encoder = open_encoder(name)
    assert encoder.backbone_name == name
    assert encoder.backbone.feature_dim == 6
    assert not encoder.backbone.training
    spec = InputSpec(32, 40, (0.5, 0.5, 0.5), (1.0, 1.0, 1.0))
    assert encoder.backbone.input_spec == spec
    with torch.no_grad():
        expected = sys.modules["my_nets"].Net()(network_inputs(split, spec))
    torch.testing.assert_close(extract_features(split, encoder), expected, atol=1e-5, rtol=1e-5)


def test_modules_are_opened_as_they_are(split):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 7, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    encoder = open_encoder(module)
    assert encoder.backbone.input_spec == InputSpec()
    with torch.no_grad():
        expected = module(network_inputs(split, InputSpec()))
    torch.testing.assert_close(extract_features(split, encoder), expected, atol=1e-5, rtol=1e-5)
    assert open_encoder(encoder) is encoder


def test_a_reference_makes_a_backbone_to_train(nets):
    backbone = make_backbone("my_nets:make_net")
    assert isinstance(backbone, Backbone)
    assert backbone.training
    assert backbone.feature_dim == 6
    backbone(torch.rand(2, 3, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())
    assert make_backbone("infoshot.backbones.conv4:Conv4").feature_dim == 64


def test_installed_packages_register_encoders(nets):
    about = nets.parent / "my_nets-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-nets\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[infoshot.encoders]\nour-net = my_nets:make_net\n")
    encoder = open_encoder("our-net")
    assert encoder.backbone_name == "our-net"
    assert encoder.backbone.feature_dim == 6
    assert make_backbone("our-net").feature_dim == 6
    with pytest.raises(InvalidArgumentError) as caught:
        open_encoder("our-nett")
    assert "Did you mean 'our-net'?" in one_sentence(caught)


ROW = "must give a row of floating-point numbers for each image; gave"
REFUSED = {
    "my_nets:text": "'my_nets:text' must be a torch.nn.Module, or a function or class that returns "
    "one; got str.",
    "my_nets:raises": "'my_nets:raises' must return a network when it is called without arguments; "
    "it raised RuntimeError: no weights here.",
    "my_nets:returns_text": "'my_nets:returns_text' must return a torch.nn.Module; got str.",
    "my_nets:returns_images": f"my_nets:returns_images: {ROW} torch.float32 of shape "
    "(2, 4, 82, 82) for two images.",
    "my_nets:Several": f"my_nets:Several: {ROW} tuple.",
    "my_nets:Whole": f"my_nets:Whole: {ROW} torch.int64 of shape (2, 3) for two images.",
    "my_nets:WrongInput": "'my_nets:WrongInput': input_spec must be an infoshot.InputSpec; got "
    "int.",
    "my_nets:Small": "my_nets:Small: failed on images of 32 x 32 pixels (images are too small).",
    "my_nets:nothing": "'my_nets:nothing': the module 'my_nets' has no 'nothing'.",
    "no_such_nets:Net": "'no_such_nets:Net': the module 'no_such_nets' cannot be imported "
    "(ModuleNotFoundError: No module named 'no_such_nets').",
    "my-net": "Unknown encoder 'my-net'. Known: efficientnet-lite0, efficientnet-lite2, "
    "dinov2-small, dinov2-base, siglip-base, clip-vit-b32, hf:ID, timm:NAME, onnx:FILE, "
    "package.module:Name, the folder of a checkpoint.",
}


@pytest.mark.parametrize("name", REFUSED)
def test_objects_that_are_not_networks_get_one_clear_sentence(name, nets):
    with pytest.raises((InvalidArgumentError, DataError)) as caught:
        open_encoder(name)
    assert one_sentence(caught) == REFUSED[name]


@pytest.mark.parametrize("name", [name for name in REFUSED if ":" in name])
def test_they_cannot_be_trained_either(name, nets):
    with pytest.raises((InvalidArgumentError, DataError)) as caught:
        make_backbone(name)
    assert one_sentence(caught) == REFUSED[name]


def _open_in_new_process(nets, name):
    """Digest, name and first feature."""
    script = f"""
        import torch
        from infoshot.backbones import open_encoder
        encoder = open_encoder({str(name)!r})
        x = torch.ones(1, 3, 32, 32)
        print(encoder.digest, encoder.backbone_name, encoder.backbone(x)[0, 0].item())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=nets.parent, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    digest, name, value = done.stdout.split()
    return digest, name, float(value)


def test_checkpoints_record_the_class_they_need(nets, tmp_path):
    torch.manual_seed(1)
    backbone = make_backbone("my_nets:make_net")
    for parameter in backbone.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        expected = backbone.eval()(torch.ones(1, 3, 32, 32))[0, 0].item()
    for part in (backbone, backbone.module):  # as training does, and as a user may do
        weights = part.state_dict()
        save_checkpoint(tmp_path / "c", "my_nets:make_net", weights, class_names=("a", "b"))
        encoder = load_checkpoint(tmp_path / "c")
        assert encoder.backbone_name == "my_nets:make_net"
        assert encoder.class_names == ("a", "b")
        assert encoder.backbone(torch.ones(1, 3, 32, 32))[0, 0].item() == expected
    digest, name, value = _open_in_new_process(nets, tmp_path / "c")
    assert (digest, name) == (encoder.digest, "my_nets:make_net")
    assert value == pytest.approx(expected, abs=1e-6)


def test_weights_of_a_file_are_loaded_into_a_reference(nets, tmp_path):
    net = make_backbone("my_nets:make_net").module
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    weights = {f"module.{name}": value for name, value in net.state_dict().items()}
    torch.save(weights, tmp_path / "w.pth")
    encoder = open_encoder("my_nets:make_net", weights=tmp_path / "w.pth")
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():  # also its layer "fc", which is a classifier in other networks
        assert torch.equal(encoder.backbone(x), net.eval()(x))
    assert encoder.digest != open_encoder("my_nets:make_net").digest


def test_the_digest_depends_on_weights_source_input_and_layers(nets, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def digest_now(name):
        sys.modules.pop("my_nets", None)
        importlib.invalidate_caches()
        return open_encoder(name).digest

    folder = tmp_path / "c"
    save_checkpoint(folder, "my_nets:Net", make_backbone("my_nets:Net").state_dict())
    plain, stored = digest_now("my_nets:Net"), digest_now(folder)
    assert (plain, stored) == (digest_now("my_nets:Net"), digest_now(folder))
    changes = {
        "source": (".relu().mean", ".tanh().mean"),
        "weights": ("torch.manual_seed(0)", "torch.manual_seed(1)"),
        "input": ("resize=40", "resize=41"),
        "layers": ("stride=2", "stride=1"),
    }
    digests = {"nothing": plain}
    for what, (old, new) in changes.items():
        assert old in NETS
        nets.write_text(NETS.replace(old, new))
        digests[what] = digest_now("my_nets:Net")
        if what == "source":  # the stored weights are the same, the features are not
            assert digest_now(folder) != stored
    assert len(set(digests.values())) == len(digests)


def test_layers_of_pytorch_count_too():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    second = nn.Sequential(first[0], nn.GELU(), *first[2:])
    assert open_encoder(first).digest != open_encoder(second).digest
    assert open_encoder(first).digest == open_encoder(first).digest


class Hooked(nn.Module):
    """Returns what a hook stored in the last call, as many feature extractors do."""

    input_spec = InputSpec(crop=16, resize=16)

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.body.register_forward_hook(self.store)

    def store(self, module, given, output):
        self.out = output

    def forward(self, x):
        self.body(x)
        time.sleep(0.002)  # another thread would store its output meanwhile
        return self.out.mean((2, 3))


def test_a_module_that_stores_values_is_called_by_one_thread(tmp_path):
    split = make_split(tmp_path)
    many = type(split)("test", split.records * 40, split.labels * 40, split.class_names)
    encoder, before = open_encoder(Hooked()), torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        features = extract_features(many, encoder)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(features, features[:5].repeat(40, 1))


def test_digest_covers_plain_attributes_and_code_without_a_file():
    def digest(code, **attributes):
        names = {"nn": nn, "InputSpec": InputSpec, "__name__": "typed"}
        exec(textwrap.dedent(code), names)
        module = names["Net"]()
        for name, value in attributes.items():
            setattr(module, name, value)
        return open_encoder(module).digest

    code = """
        class Net(nn.Module):
            input_spec = InputSpec(crop=16, resize=16)
            def forward(self, x):
                return x.amax((2, 3)) * 1.0
    """
    assert digest(code, pool="avg") == digest(code, pool="avg")
    assert digest(code, pool="avg") != digest(code, pool="max")
    assert digest(code) != digest(code.replace("* 1.0", "* 2.0"))


def test_weights_in_bfloat16_have_a_digest():
    class Cast(Hooked):
        def forward(self, x):
            return super().forward(x.bfloat16()).float()

    assert len(open_encoder(Cast().bfloat16()).digest) == 64


def test_weights_are_refused_for_a_module():
    with pytest.raises(InvalidArgumentError, match="weights must be None for a module"):
        open_encoder(Hooked(), weights="none.pt")


def test_encoders_of_other_packages_cannot_be_trained():
    with pytest.raises(InvalidArgumentError, match="cannot be trained here"):
        make_backbone("timm:resnet18")
