"""ONNX models, run by onnxruntime on the CPU. Features are the first output, flattened.

Images have 224 pixels if the model accepts any size, and are normalised with ImageNet's mean and
standard deviation. The metadata of the model may override this with JSON values: ``mean`` and
``std`` (three numbers), ``crop`` and ``resize`` (pixels).
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from infoshot.backbones.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, Encoder, InputSpec
from infoshot.backbones.external import external_checks
from infoshot.core.errors import DataError

_OPEN_CROP = 224
_LARGEST_BATCH = 1024


@final
class OnnxBackbone(Backbone):
    """A session of onnxruntime with a fixed batch size, or any batch size if ``batch`` is 0."""

    def __init__(self, session: Any, batch: int, input_spec: InputSpec) -> None:  # noqa: ANN401
        super().__init__()
        self.session = session
        self.batch = batch
        self.input_spec = input_spec

    def forward(self, images: Tensor) -> Tensor:
        """Return the first output of the model, on the device of the images."""
        pieces = images.float().cpu().split(self.batch or len(images))
        return torch.cat([self._features(piece) for piece in pieces]).to(images.device)

    def _features(self, images: Tensor) -> Tensor:
        padding = images.new_zeros(max(self.batch - len(images), 0), *images.shape[1:])
        given = {self.session.get_inputs()[0].name: torch.cat((images, padding)).numpy()}
        output = self.session.run([self.session.get_outputs()[0].name], given)[0]
        return torch.from_numpy(output[: len(images)]).flatten(1)


def open_onnx(name: str) -> Encoder:
    """Open an ONNX file.

    Raises
    ------
    DataError
        If the file does not exist, onnxruntime cannot run it, or its input is not an image batch.
    """
    onnx, runtime = external_checks.packages("onnx", "onnx", "onnxruntime")
    path = Path(name).expanduser()
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # errors are raised instead
    options.intra_op_num_threads = 1  # batches run in parallel, not layers
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        digest = _digest(path, onnx.ModelProto)
    except Exception as error:  # of many kinds
        raise DataError(
            f"{path}: onnxruntime cannot run this model ({external_checks.reason(error)})."
        ) from error
    batch, crop = _batch_and_side(path, session.get_inputs())
    spec = _input_spec(path, crop, session.get_modelmeta().custom_metadata_map)
    backbone = OnnxBackbone(session, batch, spec)
    backbone.feature_dim = external_checks.feature_width(str(path), backbone.eval())
    return Encoder(f"onnx:{path.name}", backbone, digest)


def _batch_and_side(path: Path, inputs: list[Any]) -> tuple[int, int | None]:
    """Return the batch size (0: any) and the side of an image (``None``: any)."""
    shapes = ", ".join(f"{each.type} {each.shape}" for each in inputs)
    if len(inputs) == 1 and inputs[0].type == "tensor(float)" and len(inputs[0].shape) == 4:
        batch, n_channels, *sides = (n if isinstance(n, int) else None for n in inputs[0].shape)
        fixed = {n for n in sides if n is not None}
        if n_channels in (3, None) and len(fixed) <= 1 and (batch or 0) <= _LARGEST_BATCH:
            return batch or 0, fixed.pop() if fixed else None
    raise DataError(
        f"{path}: must have one input, float32 of shape (batch, 3, side, side); has {shapes}."
    )


def _input_spec(path: Path, side: int | None, metadata: Mapping[str, str]) -> InputSpec:
    """Read size, mean and standard deviation from the metadata; default: those of ImageNet."""

    def value(name: str, default: object) -> tuple[str, object]:
        what = f"{path}: '{name}' of the metadata"
        try:
            return what, json.loads(metadata[name]) if name in metadata else default
        except (ValueError, RecursionError) as error:
            raise DataError(f"{what} must be JSON; got {metadata[name]!r:.80}.") from error

    crop = external_checks.side(*value("crop", side or _OPEN_CROP))
    if side not in (crop, None):
        raise DataError(f"{path}: 'crop' of the metadata is {crop}, but the input has {side}.")
    return InputSpec(
        crop,
        external_checks.side(*value("resize", round(crop * 256 / 224))),
        external_checks.channels(*value("mean", IMAGENET_MEAN)),
        external_checks.scales(*value("std", IMAGENET_STD)),
    )


def _digest(path: Path, model_type: Any) -> str:  # noqa: ANN401
    """Hash the file and the external files that hold its weights."""
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    for name in sorted(_weight_files(model_type.FromString(content))):
        if (
            Path(name).is_absolute()
            or ".." in Path(name).parts
            or not (path.parent / name).is_file()
        ):
            raise ValueError(f"its weights must be in a file beside it, not in {name!r:.80}")
        with (path.parent / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _weight_files(message: Any) -> set[str]:  # noqa: ANN401
    """Find the names of the external files that tensors of the model refer to."""
    found = set()
    for field, value in message.ListFields():
        if field.name == "external_data":
            found |= {entry.value for entry in value if entry.key == "location"}
        elif field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                found |= _weight_files(part)
    return found
