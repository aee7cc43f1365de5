"""The backbones by name."""

from collections.abc import Callable, Mapping

from infoshot.backbones.backbone import Backbone
from infoshot.backbones.conv4 import Conv4
from infoshot.backbones.efficientnet_lite0 import EfficientNetLite0, pretrained_lite0
from infoshot.backbones.resnet12 import ResNet12
from infoshot.backbones.resnet18 import ResNet18
from infoshot.backbones.wrn28_10 import Wrn28x10
from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError

BACKBONES: Mapping[str, Callable[[], Backbone]] = {
    "conv4": Conv4,
    "resnet12": ResNet12,
    "resnet18": ResNet18,
    "wrn28-10": Wrn28x10,
    "efficientnet-lite0": EfficientNetLite0,
}
PRETRAINED: Mapping[str, Callable[[], Backbone]] = {"efficientnet-lite0": pretrained_lite0}


def make_backbone(name: str) -> Backbone:
    """Return a backbone with random weights, to be trained or to load a checkpoint into."""
    if name not in BACKBONES:
        raise InvalidArgumentError(unknown_name("backbone", name, BACKBONES))
    return BACKBONES[name]()


def pretrained_backbone(name: str) -> Backbone:
    """Return a backbone whose weights arrive with the install, in evaluation mode."""
    if name not in PRETRAINED:
        raise InvalidArgumentError(unknown_name("pretrained backbone", name, PRETRAINED))
    return PRETRAINED[name]()
