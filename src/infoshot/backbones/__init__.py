"""Networks that map images to features."""

from infoshot.backbones.backbone import Backbone, InputSpec
from infoshot.backbones.registry import BACKBONES, PRETRAINED, make_backbone, pretrained_backbone

__all__ = [
    "BACKBONES",
    "PRETRAINED",
    "Backbone",
    "InputSpec",
    "make_backbone",
    "pretrained_backbone",
]
