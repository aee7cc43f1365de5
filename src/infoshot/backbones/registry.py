"""The networks by name, and networks of the user by ``package.module:Name``."""

from collections.abc import Callable, Mapping

from torch import nn

from infoshot.backbones.backbone import Backbone
from infoshot.backbones.conv4 import Conv4
from infoshot.backbones.efficientnet_lite import (
    EfficientNetLite0,
    EfficientNetLite2,
    pretrained_lite0,
    pretrained_lite2,
)
from infoshot.backbones.external.plain_module import as_backbone
from infoshot.backbones.resnet12 import ResNet12
from infoshot.backbones.resnet18 import ResNet18
from infoshot.backbones.wrn28_10 import Wrn28x10
from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.plugins import (
    is_reference,
    list_entry_points,
    load_entry_point,
    load_reference,
)

ENTRY_POINTS = "infoshot.encoders"
BACKBONES: Mapping[str, Callable[[], Backbone]] = {
    "conv4": Conv4,
    "resnet12": ResNet12,
    "resnet18": ResNet18,
    "wrn28-10": Wrn28x10,
    "efficientnet-lite0": EfficientNetLite0,
    "efficientnet-lite2": EfficientNetLite2,
}
"""The networks that can be trained, by name; each is made without weights.

Examples
--------
>>> from infoshot.backbones import BACKBONES
>>> BACKBONES["resnet12"]().feature_dim
640
"""
PRETRAINED: Mapping[str, Callable[[], Backbone]] = {
    "efficientnet-lite0": pretrained_lite0,
    "efficientnet-lite2": pretrained_lite2,
}
"""The networks that come with weights, by name.

Examples
--------
>>> from infoshot.backbones import PRETRAINED
>>> list(PRETRAINED)
['efficientnet-lite0', 'efficientnet-lite2']
"""
PRESETS: Mapping[str, str] = {
    "dinov2-small": "hf:facebook/dinov2-small",
    "dinov2-base": "hf:facebook/dinov2-base",
    "siglip-base": "hf:google/siglip-base-patch16-224",
    "clip-vit-b32": "hf:openai/clip-vit-base-patch32",
}
"""Short names of published encoders; see docs/encoders.md.

Examples
--------
>>> from infoshot.backbones import PRESETS
>>> PRESETS["dinov2-small"]
'hf:facebook/dinov2-small'
"""


def make_backbone(name: str) -> Backbone:
    """Build a network, to train it or to load weights into it.

    Parameters
    ----------
    name
        A network of this package, a name that an installed package registers under the entry-point
        group ``infoshot.encoders``, or ``package.module:Name`` of a function or class that, called
        without arguments, returns a ``torch.nn.Module``.

    Raises
    ------
    InvalidArgumentError
        If the name is unknown, or what it names does not return a network.

    Examples
    --------
    >>> make_backbone("resnet18").feature_dim
    512
    """
    if name in BACKBONES:
        return BACKBONES[name]()
    installed = list_entry_points(ENTRY_POINTS)
    if name in installed:
        return as_backbone(_call(load_entry_point(installed[name]), name), name)
    if name in PRESETS or name.startswith(("hf:", "timm:", "onnx:")):
        raise InvalidArgumentError(
            f"'{name}' is an encoder with its own weights, which cannot be trained here."
        )
    if not is_reference(name):
        known = (*BACKBONES, *installed, "package.module:Name")
        raise InvalidArgumentError(unknown_name("backbone", name, known))
    return as_backbone(_call(load_reference(name), name), name)


def _call(factory: object, name: str) -> nn.Module:
    if not isinstance(factory, nn.Module):
        if not callable(factory):
            raise InvalidArgumentError(
                f"'{name}' must be a torch.nn.Module, or a function or class that returns one; got "
                f"{type(factory).__name__}."
            )
        try:
            factory = factory()
        except Exception as error:  # whatever the user's code raises
            raise InvalidArgumentError(
                f"'{name}' must return a network when it is called without arguments; it raised "
                f"{type(error).__name__}: {error}."
            ) from error
    if not isinstance(factory, nn.Module):
        raise InvalidArgumentError(
            f"'{name}' must return a torch.nn.Module; got {type(factory).__name__}."
        )
    return factory
