"""The little that the rest of the package needs to know about a feature extractor."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor, nn

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class InputSpec:
    """What a network wants to see: a square of ``crop`` pixels, the shorter side first ``resize``.

    Pixels between 0 and 1 are centred on ``mean`` and divided by ``std``, per channel.
    """

    crop: int = 84
    resize: int = 96
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD


class Backbone(nn.Module, ABC):
    """A network that maps images to feature vectors; it has no classifier of its own."""

    feature_dim: int
    input_spec: InputSpec

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Features of prepared images.

        Parameters
        ----------
        images
            Shape ``(batch, 3, height, width)``, centred and scaled as ``input_spec`` says.

        Returns
        -------
        Shape ``(batch, feature_dim)``.
        """


def init_convolutions(network: nn.Module) -> None:
    """Kaiming's normal initialisation (fan out) of every convolution, as published for ours."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
