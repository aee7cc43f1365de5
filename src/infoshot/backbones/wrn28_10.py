"""WRN28-10: a wide residual network, pre-activation, 640 features.

S. Zagoruyko, N. Komodakis. Wide Residual Networks. BMVC 2016. As in the TIM paper: convolutions
with bias, no dropout, the stride in the second convolution of a block, and a final batch norm whose
running statistics follow the last batches (momentum 0.9). Names of the layers are those of the
checkpoints in circulation.
"""

from typing import final

from torch import Tensor, nn
from torch.nn.functional import relu

from infoshot.backbones.backbone import Backbone, InputSpec, init_convolutions


class _Block(nn.Module):
    """Two times batch norm, ReLU and convolution, plus a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(n_in)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, stride, padding=1)
        self.shortcut = nn.Sequential()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(relu(self.bn1(x)))
        out = self.conv2(relu(self.bn2(out)))
        return out + self.shortcut(x)  # type: ignore[no-any-return]


@final
class Wrn28x10(Backbone):
    """Three stages of four blocks, 160, 320 and 640 wide, strides 1, 2, 2."""

    feature_dim = 640
    input_spec = InputSpec()

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.layer1 = _stage(16, 160, 1)
        self.layer2 = _stage(160, 320, 2)
        self.layer3 = _stage(320, 640, 2)
        self.bn1 = nn.BatchNorm2d(640, momentum=0.9)  # as in the authors' code
        init_convolutions(self)

    def stages(self) -> tuple[nn.Module, ...]:
        """Return the three stages."""
        return self.layer1, self.layer2, self.layer3

    def maps(self, images: Tensor) -> Tensor:
        """Normalised and rectified output of the last stage; 21 x 21 positions at 84 pixels."""
        return relu(self.bn1(self.layer3(self.layer2(self.layer1(self.conv1(images))))))

    def forward(self, images: Tensor) -> Tensor:
        """Average-pooled, normalised and rectified output of the last stage."""
        return self.maps(images).mean((2, 3))


def _stage(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    first = _Block(n_in, n_out, stride)
    return nn.Sequential(first, *(_Block(n_out, n_out, 1) for _ in range(3)))
