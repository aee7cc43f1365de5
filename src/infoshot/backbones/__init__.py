"""Networks that map images to features."""

from infoshot.backbones.backbone import Backbone, Encoder, InputSpec
from infoshot.backbones.encoders import EncoderLike, open_checkpoint, open_encoder
from infoshot.backbones.registry import BACKBONES, PRESETS, PRETRAINED, make_backbone

__all__ = [
    "BACKBONES",
    "PRESETS",
    "PRETRAINED",
    "Backbone",
    "Encoder",
    "EncoderLike",
    "InputSpec",
    "make_backbone",
    "open_checkpoint",
    "open_encoder",
]
