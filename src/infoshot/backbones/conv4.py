"""Conv-4: four convolutional blocks of 64 channels, average-pooled to 64 features.

J. Snell, K. Swersky, R. Zemel. Prototypical Networks for Few-shot Learning. NIPS 2017. Their
network flattens the last map to 1600 numbers; the average does not depend on the size of the image.
"""

from typing import final

from torch import Tensor, nn

from infoshot.backbones.backbone import Backbone, InputSpec, init_convolutions


@final
class Conv4(Backbone):
    """Four blocks: 3 x 3 convolution with 64 channels, batch norm, ReLU, max-pooling."""

    feature_dim = 64
    input_spec = InputSpec()

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_block(3), _block(64), _block(64), _block(64))
        init_convolutions(self)

    def stages(self) -> tuple[nn.Module, ...]:
        """Return the four blocks."""
        return tuple(self.blocks)

    def maps(self, images: Tensor) -> Tensor:
        """Output of the last block; 5 x 5 positions at 84 pixels."""
        return self.blocks(images)  # type: ignore[no-any-return]

    def forward(self, images: Tensor) -> Tensor:
        """Average-pooled output of the last block."""
        return self.maps(images).mean((2, 3))


def _block(n_in: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(n_in, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )
