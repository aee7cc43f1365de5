"""ResNet-12: four blocks of three convolutions with max-pooling and DropBlock, 640 features.

The few-shot field's other standard (K. Lee, S. Maji, A. Ravichandran, S. Soatto. Meta-Learning with
Differentiable Convex Optimization. CVPR 2019): widths 64, 160, 320, 640, leaky rectifiers.
DropBlock: G. Ghiasi, T.-Y. Lin, Q. V. Le. DropBlock. NeurIPS 2018.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from infoshot.backbones.backbone import Backbone, InputSpec


class _DropBlock(nn.Module):
    """Drops square blocks of features while training; the rest is scaled up to keep the mean."""

    def __init__(self, size: int = 5, rate: float = 0.1) -> None:
        super().__init__()
        self.size, self.rate = size, rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        height, width = x.shape[2:]
        size = min(self.size, height, width)
        centres = torch.rand_like(x) < self.rate / size**2
        dropped = max_pool2d(centres.to(x.dtype), size, stride=1, padding=size // 2)
        keep = 1 - dropped[:, :, :height, :width]
        return x * keep * (keep.numel() / keep.sum().clamp(min=1))


class _Block(nn.Module):
    """Three 3 x 3 convolutions beside a 1 x 1 one, then max-pooling."""

    def __init__(self, n_in: int, n_out: int, drop: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.LeakyReLU(0.1),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.LeakyReLU(0.1),
            nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, bias=False), nn.BatchNorm2d(n_out))
        self.finish = nn.Sequential(nn.LeakyReLU(0.1), nn.MaxPool2d(2), drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(self.body(x) + self.shortcut(x))  # type: ignore[no-any-return]


@final
class ResNet12(Backbone):
    """Blocks of 64, 160, 320 and 640; dropout in the first two, DropBlock in the others."""

    feature_dim = 640
    input_spec = InputSpec()

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = _Block(3, 64, nn.Dropout(0.1))
        self.layer2 = _Block(64, 160, nn.Dropout(0.1))
        self.layer3 = _Block(160, 320, _DropBlock())
        self.layer4 = _Block(320, 640, _DropBlock())
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, a=0.1, mode="fan_out")

    def stages(self) -> tuple[nn.Module, ...]:
        """Return the four stages."""
        return self.layer1, self.layer2, self.layer3, self.layer4

    def maps(self, images: Tensor) -> Tensor:
        """Output of the last block; 5 x 5 positions at 84 pixels."""
        return self.layer4(self.layer3(self.layer2(self.layer1(images))))  # type: ignore[no-any-return]

    def forward(self, images: Tensor) -> Tensor:
        """Average-pooled output of the last block."""
        return self.maps(images).mean((2, 3))
