import shutil
import warnings

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from infoshot import DataError
from infoshot.backbones import InputSpec, make_backbone, open_encoder
from infoshot.backbones.backbone import IMAGENET_MEAN, IMAGENET_STD
from infoshot.features.extract import Extraction
from tests.encoders import extract_features, make_split, network_inputs, one_sentence


@pytest.fixture(scope="module")
def conv4():
    torch.manual_seed(0)
    return make_backbone("conv4").eval()


def _export(network, shape, path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newer exporter is ten times slower
        torch.onnx.export(
            network, (torch.rand(shape),), path, dynamo=False, input_names=["x"], **options
        )


@pytest.fixture(scope="module")
def exported(conv4, tmp_path_factory):
    """A network with dynamic sizes and its weights in another file, and one for 4 x 84 x 84."""
    folder = tmp_path_factory.mktemp("exported")
    axes = {"x": {0: "batch", 2: "height", 3: "width"}}
    _export(conv4, (2, 3, 64, 48), folder / "open.onnx", dynamic_axes=axes)
    model = onnx.load(folder / "open.onnx")
    onnx.save(model, folder / "open.onnx", save_as_external_data=True, location="open.onnx.data")
    _export(conv4, (4, 3, 84, 84), folder / "fixed.onnx")
    return folder


@pytest.mark.parametrize(("file", "crop", "resize"), [("open", 224, 256), ("fixed", 84, 96)])
def test_features_equal_those_of_pytorch(file, crop, resize, conv4, exported, tmp_path):
    encoder = open_encoder(f"onnx:{exported / file}.onnx")
    assert encoder.backbone.input_spec == InputSpec(crop, resize, IMAGENET_MEAN, IMAGENET_STD)
    assert encoder.backbone.feature_dim == 64
    assert encoder.backbone_name == f"onnx:{file}.onnx"
    split = make_split(tmp_path)
    with torch.no_grad():
        expected = conv4(network_inputs(split, encoder.backbone.input_spec))
    for batch_size in (3, 8):  # below and above the batch of the model; neither divides it
        features = extract_features(split, encoder, Extraction(batch_size=batch_size))
        torch.testing.assert_close(features, expected, atol=1e-5, rtol=1e-5)


def test_digest_depends_on_weights_in_another_file(exported, tmp_path):
    original = open_encoder(f"onnx:{exported / 'open.onnx'}").digest
    folder = shutil.copytree(exported, tmp_path / "copy")
    assert open_encoder(f"onnx:{folder / 'open.onnx'}").digest == original
    weights = folder / "open.onnx.data"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    assert open_encoder(f"onnx:{folder / 'open.onnx'}").digest != original


def _mean_of_pixels(
    path, shape=("n", 3, "h", "w"), dtype=TensorProto.FLOAT, nodes=None, **metadata
):
    """A model whose features are the mean of each channel, unless other nodes are given."""
    nodes = nodes or [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", dtype, shape)]
    inputs += [helper.make_tensor_value_info(n, dtype, shape) for n in metadata.pop("more", ())]
    output = helper.make_empty_tensor_value_info("y")
    output.type.tensor_type.elem_type = metadata.pop("out", dtype)
    graph = helper.make_graph(nodes, "mean", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)


def test_metadata_describe_the_input_of_the_model(tmp_path):
    metadata = {"mean": "[0, 0.5, 1]", "std": "[1, 2, 0.5]", "crop": "32", "resize": "40"}
    _mean_of_pixels(tmp_path / "m.onnx", **metadata)
    backbone = open_encoder(f"onnx:{tmp_path / 'm.onnx'}").backbone
    assert backbone.input_spec == InputSpec(32, 40, (0, 0.5, 1), (1, 2, 0.5))
    images = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(backbone(images), images.mean((2, 3)))


ARGMAX = [helper.make_node("ArgMax", ["x"], ["y"], axis=1)]
MEAN_OF_ALL = [helper.make_node("ReduceMean", ["x"], ["y"])]
INPUT = "must have one input, float32 of shape (batch, 3, side, side); has "
BAD = {
    "three axes": ({"shape": ("n", 3, 32), "nodes": MEAN_OF_ALL}, INPUT + "tensor(float) ['n', 3, 32]."),
    "channels last": ({"shape": (1, 32, 32, 3)}, INPUT + "tensor(float) [1, 32, 32, 3]."),
    "not square": ({"shape": (1, 3, 32, 48)}, INPUT + "tensor(float) [1, 3, 32, 48]."),
    "half": ({"dtype": TensorProto.FLOAT16}, INPUT + "tensor(float16) ['n', 3, 'h', 'w']."),
    "two inputs": ({"more": ("z",)}, INPUT + "tensor(float) ['n', 3, 'h', 'w'], tensor(float) ['n', 3, 'h', 'w']."),
    "whole numbers": ({"nodes": ARGMAX, "out": TensorProto.INT64}, "must give a row of floating-point numbers for each image; gave torch.int64 of shape (2, 50176) for two images."),
    "one row for all": ({"nodes": MEAN_OF_ALL}, "must give a row of floating-point numbers for each image; gave torch.float32 of shape (1, 1) for two images."),
    "not JSON": ({"mean": "0.5 0.5 0.5"}, "'mean' of the metadata must be JSON; got '0.5 0.5 0.5'."),
    "one mean": ({"mean": "0.5"}, "'mean' of the metadata must be three finite numbers, one per channel; got 0.5."),
    "no scale": ({"std": "[1, 1, 0]"}, "'std' of the metadata must be above 0 in every channel; got [1, 1, 0]."),
    "no crop": ({"crop": "0"}, "'crop' of the metadata must be the side of a square in pixels; got 0."),
    "huge crop": ({"crop": "1000000"}, "'crop' of the metadata must be at most 4096 pixels."),
    "huge mean": ({"mean": f"[1{'0' * 400}, 1, 1]"}, f"'mean' of the metadata must be three finite numbers, one per channel; got [1{'0' * 78}."),
    "nested mean": ({"mean": "[" * 100_000}, f"'mean' of the metadata must be JSON; got '{'[' * 79}."),
    "huge batch": ({"shape": (100_000, 3, 32, 32)}, INPUT + "tensor(float) [100000, 3, 32, 32]."),
    "another crop": ({"shape": (1, 3, 32, 32), "crop": "24"}, "'crop' of the metadata is 24, but the input has 32."),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_models_that_are_not_encoders_get_one_clear_sentence(case, tmp_path):
    options, message = BAD[case]
    _mean_of_pixels(path := tmp_path / "m.onnx", **options)
    with pytest.raises(DataError) as caught:
        open_encoder(f"onnx:{path}")
    assert one_sentence(caught) == f"{path}: {message}"


def test_models_that_fail_get_one_clear_sentence(tmp_path, capfd):
    to_seven = [
        helper.make_node("Constant", [], ["seven"], value_ints=[7]),
        helper.make_node("Reshape", ["x", "seven"], ["y"]),
    ]
    _mean_of_pixels(path := tmp_path / "m.onnx", nodes=to_seven)
    with pytest.raises(DataError, match="failed on images of 224 x 224 pixels") as caught:
        open_encoder(f"onnx:{path}")
    one_sentence(caught)
    assert capfd.readouterr().err == ""


def test_damaged_files_get_one_clear_sentence(exported, tmp_path, capfd):
    with pytest.raises(DataError, match=r"none\.onnx: there is no such file\."):
        open_encoder(f"onnx:{tmp_path / 'none.onnx'}")
    content = (exported / "fixed.onnx").read_bytes()
    files = {"empty": b"", "text": b"hello" * 99, "half": content[: len(content) // 2]}
    files["alone"] = (exported / "open.onnx").read_bytes()  # without the weights beside it
    for name, content in files.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"\.onnx: onnxruntime cannot run this model \(.+\)\.$") as caught:  # fmt: skip
            open_encoder(f"onnx:{path}")
        one_sentence(caught)
    assert capfd.readouterr().err == ""
