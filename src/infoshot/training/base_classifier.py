"""The network of base training: a backbone with linear classifiers over its features."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor, nn

from infoshot.backbones import Backbone
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.training.config import TrainConfig
from infoshot.training.problem import TrainedNetwork

_ANGLES = 4


@final
class BaseClassifier(TrainedNetwork):
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


@dataclass(frozen=True, eq=False)
class Teacher:
    """A trained network with its classifier, its classes and the digest of its weights."""

    network: BaseClassifier
    class_names: tuple[str, ...]
    digest: str

    def check_classes(self, class_names: tuple[str, ...]) -> None:
        """Raise ``DataError`` if it was trained on other classes."""
        if self.class_names != class_names:
            raise DataError("the teacher was trained on other classes, so it cannot teach these.")


def load_teacher(folder: Path, config: TrainConfig) -> Teacher:
    """Read a network that shall teach a training with these settings.

    Raises
    ------
    DataError
        If the checkpoint is missing or has no classifier.
    InvalidArgumentError
        If the settings do not allow a teacher.
    """
    if config.mixup:
        raise InvalidArgumentError("mixup must be 0 with a teacher, which sees unmixed images.")
    encoder = load_checkpoint(folder)
    if encoder.classifier is None:
        raise DataError(
            f"{folder}: has no classifier, so it cannot teach; use a checkpoint that this version "
            "of 'infoshot train' wrote."
        )
    network = BaseClassifier(encoder.backbone, len(encoder.class_names))
    network.head.load_state_dict(encoder.classifier)
    return Teacher(network.eval().requires_grad_(False), encoder.class_names, encoder.digest)
