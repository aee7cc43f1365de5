"""The network of base training: a backbone with classifiers over its features."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import Tensor, nn

from infoshot.backbones import Backbone
from infoshot.backbones.checkpoints import load_checkpoint
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.training.config import TrainConfig
from infoshot.training.cosine_classifier import CosineClassifier
from infoshot.training.problem import TrainedNetwork

_ANGLES = 4


@final
class BaseClassifier(TrainedNetwork):
    """A backbone with a classifier, and a linear layer for the angle of turned images.

    Without a ``head`` the classifier is a linear layer.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_classes: int,
        *,
        predicts_angle: bool = False,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.feature_dim, n_classes) if head is None else head
        self.angle_head = nn.Linear(backbone.feature_dim, _ANGLES) if predicts_angle else None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the logits of classes and angles, shapes ``(batch, class)`` and ``(batch, 4)``."""
        features = self.backbone(images)
        angles = None if self.angle_head is None else self.angle_head(features)
        return self.head(features), angles


def make_classifier(config: TrainConfig, dim: int, n_classes: int) -> nn.Module:
    """Return the untrained classifier that the settings name, over features of this width."""
    if config.classifier == "linear":
        return nn.Linear(dim, n_classes)
    return CosineClassifier(dim, n_classes, config.classifier_scale, config.classifier_scaling)


def restore_classifier(classifier: Mapping[str, Tensor]) -> nn.Module:
    """Return a trained classifier from the tensors of a checkpoint."""
    n_classes, dim = classifier["weight"].shape
    head: nn.Module = nn.Linear(dim, n_classes)
    if "scale" in classifier:
        per_class = classifier["scale"].ndim > 0
        head = CosineClassifier(dim, n_classes, scaling="per-class" if per_class else "learned")
    head.load_state_dict(dict(classifier))
    return head


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
    head = restore_classifier(encoder.classifier)
    network = BaseClassifier(encoder.backbone, len(encoder.class_names), head=head)
    return Teacher(network.eval().requires_grad_(False), encoder.class_names, encoder.digest)
