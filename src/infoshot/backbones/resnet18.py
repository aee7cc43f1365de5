"""ResNet-18 for small images: 3 x 3 stem with stride 1, no max-pool, 512 features.

K. He, X. Zhang, S. Ren, J. Sun. Deep Residual Learning for Image Recognition. CVPR 2016; the stem
is the few-shot field's. Names of the layers are those of the checkpoints in circulation.
"""

from typing import final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, InputSpec, init_convolutions


class _Block(nn.Module):
    """Two 3 x 3 convolutions, plus a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + self.downsample(x))  # type: ignore[no-any-return]


@final
class ResNet18(Backbone):
    """Four stages of two blocks, 64, 128, 256 and 512 wide, strides 1, 2, 2, 2."""

    feature_dim = 512
    input_spec = InputSpec()

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(_Block(64, 64, 1), _Block(64, 64, 1))
        self.layer2 = nn.Sequential(_Block(64, 128, 2), _Block(128, 128, 1))
        self.layer3 = nn.Sequential(_Block(128, 256, 2), _Block(256, 256, 1))
        self.layer4 = nn.Sequential(_Block(256, 512, 2), _Block(512, 512, 1))
        init_convolutions(self)

    def stages(self) -> tuple[nn.Module, ...]:
        """Return the four stages."""
        return self.layer1, self.layer2, self.layer3, self.layer4

    def maps(self, images: Tensor) -> Tensor:
        """Output of the last stage; 11 x 11 positions at 84 pixels."""
        x = self.relu(self.bn1(self.conv1(images)))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))  # type: ignore[no-any-return]

    def forward(self, images: Tensor) -> Tensor:
        """Average-pooled output of the last stage."""
        return self.maps(images).mean((2, 3))
