"""The network of base training: a backbone with linear classifiers over its features."""

from pathlib import Path
from typing import final

from torch import Tensor, nn

from infoshot.backbones import Backbone
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.core.errors import DataError

_ANGLES = 4


@final
class BaseClassifier(nn.Module):
    """A backbone with a linear layer for the classes, and one for the angle of turned images."""

    def __init__(self, backbone: Backbone, n_classes: int, *, predicts_angle: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.feature_dim, n_classes)
        self.angle_head = nn.Linear(backbone.feature_dim, _ANGLES) if predicts_angle else None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the logits of classes and angles, shapes ``(batch, class)`` and ``(batch, 4)``."""
        features = self.backbone(images)
        angles = None if self.angle_head is None else self.angle_head(features)
        return self.head(features), angles


def load_teacher(folder: Path, class_names: tuple[str, ...]) -> tuple[BaseClassifier, str]:
    """Read a trained network with its classifier; return also the digest of its weights.

    Raises
    ------
    DataError
        If the checkpoint has no classifier, or one for other classes.
    """
    encoder = load_checkpoint(folder)
    if encoder.classifier is None:
        raise DataError(
            f"{folder}: has no classifier, so it cannot teach; use a checkpoint that this version "
            "of 'infoshot train' wrote."
        )
    if encoder.class_names != class_names:
        raise DataError(f"{folder}: was trained on other classes, so it cannot teach these.")
    teacher = BaseClassifier(encoder.backbone, len(class_names))
    teacher.head.load_state_dict(encoder.classifier)
    return teacher.eval().requires_grad_(False), encoder.digest
