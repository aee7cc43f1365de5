import json
import logging
import shutil
import sys

import pytest
import torch
import transformers
from torch import nn

from infoshot import DataError, InvalidArgumentError
from infoshot.backbones import PRESETS, PRETRAINED, InputSpec, make_backbone, open_encoder
from infoshot.backbones.backbone import IMAGENET_MEAN, IMAGENET_STD, weights_digest
from infoshot.backbones.checkpoints import save_checkpoint
from infoshot.core.errors import MissingDependencyError
from infoshot.features.extract import Extraction
from tests.encoders import extract_features, make_split, network_inputs, one_sentence


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return make_split(tmp_path_factory.mktemp("photos"))


def _same(features, expected):
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-5)


# Names and encoders of this package


def test_pretrained_names_and_checkpoints_are_opened(tmp_path):
    expected = weights_digest(PRETRAINED["efficientnet-lite0"]())
    assert open_encoder("efficientnet-lite0").digest == expected
    digest = save_checkpoint(tmp_path / "c", "conv4", make_backbone("conv4").state_dict())
    for spec in (tmp_path / "c", tmp_path / "c" / "checkpoint.json"):
        assert open_encoder(str(spec)).digest == digest


UNKNOWN = {
    "efficientnet-lite": "Did you mean 'efficientnet-lite2'?",
    "facebook/dinov2-small": "clip-vit-b32, hf:ID, timm:NAME, onnx:FILE, package.module:Name, the folder of a checkpoint.",
    "model.onnx": "Did you mean 'onnx:model.onnx'?",
    "hf:": "Did you mean 'hf:ID'?",
    "keras:vgg": "'keras:vgg': the module 'keras' cannot be imported (ModuleNotFoundError: ",
}


@pytest.mark.parametrize("spec", UNKNOWN)
def test_unknown_encoders_get_one_clear_sentence(spec):
    with pytest.raises(InvalidArgumentError) as caught:
        open_encoder(spec)
    assert UNKNOWN[spec] in one_sentence(caught)


def test_folder_without_a_encoder_is_reported(tmp_path):
    with pytest.raises(DataError, match="the folder is not a checkpoint"):
        open_encoder(str(tmp_path))


MISSING = {
    "hf": ("transformers", "hf: encoders need transformers; pip install 'infoshot[hf]'."),
    "timm": ("timm", "timm: encoders need timm; pip install 'infoshot[timm]'."),
    "onnx": ("onnxruntime", "onnx: encoders need onnx and onnxruntime; pip install onnx onnxruntime."),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISSING)
def test_missing_packages_are_reported_with_the_command_to_install_them(kind, monkeypatch):
    package, message = MISSING[kind]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as caught:
        open_encoder(f"{kind}:x")
    assert one_sentence(caught) == message


# transformers

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
        "patch_size": 8}  # fmt: skip
TOWER = TINY | {"intermediate_size": 32}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
CLIP_SIZES = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
SIZES = {"size": {"height": 32, "width": 32}}
DINO_SIZES = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}


def _class_token(model, x):
    return model(pixel_values=x).last_hidden_state[:, 0]


def _pooled(model, x):
    return model(pixel_values=x).pooler_output


def _embedding(model, x):
    return model.get_image_features(pixel_values=x).pooler_output


# model class, settings of its configuration, image processor, how transformers computes features
MODELS = {
    "vit": ("ViTModel", TOWER, SIZES, _class_token),
    "deit": ("DeiTModel", TOWER, {"size": 36, "crop_size": 32, "do_center_crop": True}, _class_token),
    "dinov2": ("Dinov2Model", TINY, DINO_SIZES, _class_token),
    "dinov2-registers": ("Dinov2WithRegistersModel", TINY, DINO_SIZES, _class_token),
    "dinov3": ("DINOv3ViTModel", TOWER, SIZES, _class_token),
    "clip": ("CLIPModel", {"vision_config": TOWER, "text_config": TEXT, "projection_dim": 12}, CLIP_SIZES, _embedding),
    "clip-tower": ("CLIPVisionModel", TOWER, {"size": 32, "do_center_crop": False, "crop_size": 24}, _pooled),
    "siglip": ("SiglipModel", {"vision_config": TOWER, "text_config": TEXT}, SIZES, _embedding),
    "siglip-tower": ("SiglipVisionModel", TOWER, SIZES, _pooled),
}  # fmt: skip


def _model(name):
    model_class, settings, _, _ = MODELS[name]
    torch.manual_seed(0)
    model_class = getattr(transformers, model_class)
    return model_class(model_class.config_class(**settings)).eval()


def _saved(folder, name="vit", model=None, **processor):
    (_model(name) if model is None else model).save_pretrained(folder)
    processor = MODELS[name][2] | {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]} | processor  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_features_equal_those_of_transformers(name, split, tmp_path, monkeypatch, capfd):
    folder = _saved(tmp_path / name, name)
    monkeypatch.setattr("socket.socket.connect", None)  # no network access
    capfd.readouterr()
    encoder = open_encoder(f"hf:{folder}")
    assert capfd.readouterr() == ("", "")
    resize = {"deit": 36, "dinov2": 40, "dinov2-registers": 40}.get(name, 32)
    spec = InputSpec(32, resize, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    assert encoder.backbone.input_spec == spec
    assert encoder.backbone_name == f"hf:{name}"
    assert not encoder.backbone.training
    assert not [key for key in encoder.backbone.state_dict() if "text_model" in key]
    with torch.no_grad():
        expected = MODELS[name][3](_model(name), network_inputs(split, spec))
    assert encoder.backbone.feature_dim == expected.shape[1]
    _same(extract_features(split, encoder, Extraction(batch_size=2)), expected)


def test_class_token_needs_no_pooler_and_float16_weights_become_float32(
    split, tmp_path, monkeypatch, caplog
):
    classifier = transformers.ViTForImageClassification(transformers.ViTConfig(**TOWER)).half()
    folder = _saved(tmp_path, "vit", classifier)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    first, second = (open_encoder(f"hf:{folder}") for _ in range(2))
    assert not caplog.records  # transformers would report unused and new weights
    assert first.digest == second.digest  # it has no random pooler
    with torch.no_grad():
        expected = _class_token(
            classifier.float().vit, network_inputs(split, first.backbone.input_spec)
        )
    _same(extract_features(split, first, Extraction()), expected)


def test_digest_depends_on_everything_that_features_depend_on(tmp_path):
    model = _model("vit")
    digests = [open_encoder(f"hf:{_saved(tmp_path / f, 'vit', model)}").digest for f in "ab"]
    assert digests[0] == digests[1]
    digests.append(open_encoder(f"hf:{_saved(tmp_path / 'c', 'vit', model, image_mean=[0, 0, 0])}").digest)  # fmt: skip
    model.config.layer_norm_eps = 1e-3
    digests.append(open_encoder(f"hf:{_saved(tmp_path / 'd', 'vit', model)}").digest)
    with torch.no_grad():
        model.layernorm.bias.add_(1e-3)
    digests.append(open_encoder(f"hf:{_saved(tmp_path / 'e', 'vit', model)}").digest)
    assert len(set(digests)) == 4


def test_processor_inside_another_and_without_normalisation(tmp_path):
    folder = _saved(tmp_path)
    (folder / "preprocessor_config.json").unlink()
    values = {"size": 40, "crop_size": None, "do_center_crop": None, "do_normalize": False}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": SIZES | values}))
    with pytest.raises(DataError, match="failed on images of 40 x 40 pixels"):
        open_encoder(f"hf:{folder}")
    values |= {"size": 32}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": SIZES | values}))
    spec = open_encoder(f"hf:{folder}").backbone.input_spec
    assert spec == InputSpec(32, 32, mean=(0, 0, 0), std=(1, 1, 1))


def _edit(folder, name, **values):
    content = json.loads((folder / name).read_text()) | values
    (folder / name).write_text(json.dumps(content))


def _processor(**values):
    return lambda folder: _edit(folder, "preprocessor_config.json", **values)


def _drop_weight(folder):
    weights = transformers.ViTModel.from_pretrained(folder).state_dict()
    del weights["layernorm.bias"]
    transformers.ViTModel.from_pretrained(folder).save_pretrained(folder, state_dict=weights)


BAD_HF = {
    "another kind": (lambda f: _edit(f, "config.json", model_type="bert"), "the model type bert is not supported; these are: vit, deit, dinov2,"),
    "no configuration": (lambda f: (f / "config.json").unlink(), "transformers cannot read a vision model ("),
    "half a configuration": (lambda f: (f / "config.json").write_text("{"), "transformers cannot read a vision model ("),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "transformers cannot read a vision model (Error no file"),
    "damaged weights": (lambda f: (f / "model.safetensors").write_bytes(b"x" * 99), "transformers cannot read a vision model ("),
    "a weight missing": (_drop_weight, "1 of its weights are missing (such as 'layernorm.bias')"),
    "weights of another shape": (lambda f: _edit(f, "config.json", hidden_size=8), "transformers cannot read a vision model ("),
    "no processor": (lambda f: (f / "preprocessor_config.json").unlink(), "transformers cannot read a vision model (Can't load image processor for '"),
    "no size": (_processor(size=None), "'size' of the image processor must be the side of a square in pixels; got None."),
    "not square": (_processor(size={"height": 32, "width": 24}), "must be the side of a square in pixels; got {'height': 32, 'width': 24}."),
    "no crop": (_processor(do_center_crop=True), "'crop_size' of the image processor must be the side of a square in pixels; got None."),
    "no mean": (_processor(image_mean=None), "'image_mean' of the image processor must be three finite numbers, one per channel; got None."),
    "no scale": (_processor(image_std=[1, 0, 1]), "'image_std' of the image processor must be above 0 in every channel; got [1, 0, 1]."),
    "other pixels": (_processor(rescale_factor=1 / 127.5), "'rescale_factor' of the image processor must be 1/255; got 0.00784"),
    "wrong size": (_processor(size=40), "failed on images of 40 x 40 pixels (Input image size (40*40) doesn't match model (32*32)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def vit_folder(tmp_path_factory):
    return _saved(tmp_path_factory.mktemp("models") / "vit")


@pytest.mark.parametrize("case", BAD_HF)
def test_bad_models_get_one_clear_sentence(case, vit_folder, tmp_path):
    make, message = BAD_HF[case]
    folder = shutil.copytree(vit_folder, tmp_path / "vit")
    make(folder)
    with pytest.raises(DataError) as caught:
        open_encoder(f"hf:{folder}")
    assert message in one_sentence(caught)
    assert str(caught.value).startswith(str(folder))


def test_a_path_without_a_model_gets_one_clear_sentence():
    with pytest.raises(DataError) as caught:
        open_encoder("hf:/no/such/folder")
    start = "hf:/no/such/folder: transformers cannot read a vision model ("
    assert one_sentence(caught).startswith(start)


NO_HUB = ("the Hugging Face hub cannot be reached, and this machine has no copy of the model; download it elsewhere, "
          "copy its folder to this machine and pass 'hf:FOLDER' (docs/encoders.md).")  # fmt: skip


@pytest.mark.parametrize("name", ["hf:someone/no-such-model", *PRESETS])
@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_that_cannot_be_reached_gets_one_clear_sentence(
    name, offline, monkeypatch, tmp_path, capfd
):
    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    with pytest.raises(DataError) as caught:
        open_encoder(name)
    assert one_sentence(caught) == f"{PRESETS.get(name, name)}: {NO_HUB}"
    assert capfd.readouterr() == ("", "")


# What the hub has as preprocessor_config.json of the presets, and the input that follows from it.
HALF, CLIP_MEAN, CLIP_STD = (0.5, 0.5, 0.5), (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # fmt: skip
PUBLISHED = {
    "dinov2-small": ("dinov2", {"crop_size": {"height": 224, "width": 224}, "do_center_crop": True, "image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD, "rescale_factor": 1 / 255, "size": {"shortest_edge": 256}}, InputSpec(224, 256)),
    "siglip-base": ("siglip", {"do_normalize": True, "image_mean": HALF, "image_std": HALF, "rescale_factor": 1 / 255, "size": {"height": 224, "width": 224}}, InputSpec(224, 224, HALF, HALF)),
    "clip-vit-b32": ("clip", {"crop_size": 224, "do_center_crop": True, "do_normalize": True, "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "size": 224}, InputSpec(224, 224, CLIP_MEAN, CLIP_STD)),
}  # fmt: skip


@pytest.mark.parametrize("preset", PUBLISHED)
def test_presets_open_models_with_the_published_input(preset, split, tmp_path, monkeypatch):
    name, processor, spec = PUBLISHED[preset]
    model_class, settings, _, by_transformers = MODELS[name]
    side = {"image_size": 224, "patch_size": 112}
    settings = {**settings, **(side if name == "dinov2" else {"vision_config": TOWER | side})}
    torch.manual_seed(0)
    model_class = getattr(transformers, model_class)
    model = model_class(model_class.config_class(**settings)).eval()
    model.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    monkeypatch.setattr("infoshot.backbones.encoders.PRESETS", {preset: f"hf:{tmp_path}"})
    encoder = open_encoder(preset)
    assert encoder.backbone.input_spec == spec
    with torch.no_grad():
        expected = by_transformers(model, network_inputs(split, spec))
    _same(extract_features(split, encoder, Extraction()), expected)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_cannot_be_trained(preset):
    with pytest.raises(InvalidArgumentError, match="is an encoder with its own weights"):
        make_backbone(preset)


# timm, replaced by a stand-in, since it cannot be imported beside every build of PyTorch


class _Timm:
    """The four functions of timm that are called."""

    def __init__(self, size=(3, 32, 32), **config):
        self.config = {
            "input_size": size,
            "crop_pct": 0.9,
            "mean": (0.4, 0.5, 0.6),
            "std": (1, 1, 1),
        }
        self.config |= config
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Conv2d(3, 7, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.data = self

    def is_model(self, name):
        return name == "resnet50"

    def list_models(self):
        return ["resnet50", "vit_base"]

    def create_model(self, name, *, pretrained, num_classes):
        assert pretrained
        assert num_classes == 0
        if name != "resnet50.a1_in1k":
            raise RuntimeError(f"No pretrained weights exist for {name}. Use `pretrained=False`.")
        return self.model

    def resolve_model_data_config(self, model):
        assert model is self.model
        return self.config


def test_timm_models_get_the_input_that_timm_describes(split, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", timm := _Timm())
    encoder = open_encoder("timm:resnet50.a1_in1k")
    spec = InputSpec(32, 35, (0.4, 0.5, 0.6), (1, 1, 1))  # floor(32 / 0.9)
    assert encoder.backbone.input_spec == spec
    assert encoder.backbone.feature_dim == 7
    assert encoder.backbone_name == "timm:resnet50.a1_in1k"
    with torch.no_grad():
        expected = timm.model(network_inputs(split, spec))
    _same(extract_features(split, encoder, Extraction()), expected)
    with torch.no_grad():
        timm.model[0].bias.add_(1e-3)
    assert open_encoder("timm:resnet50.a1_in1k").digest != encoder.digest


BAD_TIMM = {
    "unknown": ("resnet5", {}, "Unknown timm model 'resnet5'. Did you mean 'resnet50'?"),
    "without weights": ("resnet50.a2", {}, "timm:resnet50.a2: timm cannot open it (No pretrained weights exist for resnet50.a2)."),
    "not square": ("resnet50.a1_in1k", {"size": (3, 32, 24)}, "timm:resnet50.a1_in1k: must take square colour images; takes (3, 32, 24)."),
    "odd mean": ("resnet50.a1_in1k", {"mean": (0.5,)}, "timm:resnet50.a1_in1k: mean must be three finite numbers, one per channel; got (0.5,)."),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_TIMM)
def test_bad_timm_models_get_one_clear_sentence(case, monkeypatch):
    name, options, message = BAD_TIMM[case]
    monkeypatch.setitem(sys.modules, "timm", _Timm(**options))
    with pytest.raises((DataError, InvalidArgumentError)) as caught:
        open_encoder(f"timm:{name}")
    assert one_sentence(caught) == message


@pytest.mark.parametrize("error", ["RuntimeError('operator torchvision::nms does not exist')", "ImportError('No torchvision')"])  # fmt: skip
def test_timm_that_cannot_be_imported_is_reported(error, tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(MissingDependencyError, match=r"timm, installed here but not importable \(.*torchvision.*\)\.$"):  # fmt: skip
        open_encoder("timm:resnet50")
