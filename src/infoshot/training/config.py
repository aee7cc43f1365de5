"""The settings of base training; their defaults are the published recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, final

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.training.run_config import RunConfig

CLASSIFIERS = ("linear", "cosine")
SCALINGS = ("fixed", "learned", "per-class")
_CROPS = (16, 4096)  # smallest and largest side of training crops
_PUBLISHED_BATCH: Mapping[str, int] = {"wrn28-10": 128}


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """Stochastic gradient descent on the label-smoothed cross-entropy, as published for TIM.

    The settings of the descent and of the augmentation are those of
    :class:`~infoshot.training.run_config.RunConfig`.

    Parameters
    ----------
    epochs
        Passes over the training images.
    batch_size
        Images per step over all processes; ``None``: 256, and 128 for ``wrn28-10``.
    drops
        Shares of the epochs after which the rate drops; the default is epoch 45 and 66 of 90.
    train_crop
        Side of the training crops in pixels; ``None``: that of the crops at test time. A random
        crop enlarges what it shows, so objects look smaller at test time. Training on smaller crops
        removes a part of this difference and is faster (H. Touvron et al., Fixing the Train-Test
        Resolution Discrepancy, NeurIPS 2019).
    label_smoothing
        Probability that the target spreads evenly over the wrong classes.
    classifier
        ``"linear"``: a linear layer with bias; ``"cosine"``: scaled cosines of features and class
        weights, see ``cosine_classifier.py``.
    classifier_scale
        Scale of the cosines, or the value that it starts from.
    classifier_scaling
        ``"fixed"``: the scale stays as it is; ``"learned"``: one scale is learned; ``"per-class"``:
        one of each class is.
    margin
        What the loss subtracts from the cosine of the true class before it is scaled; negative for
        Neg-cosine. It needs a cosine classifier with a fixed scale.
    rotation_weight
        Weight of rotation prediction, which also adds a turned copy of every batch; 0 turns it off.
    mixup
        Parameter of the Beta distribution of manifold mixup; 0 turns it off.
    mixup_start
        Share of the epochs that are trained before mixup begins.
    distillation_weight
        Share of the teacher in the loss, if there is one.
    distillation_temperature
        Temperature that softens the predictions of teacher and student.
    val_tasks
        Number of 5-way 1-shot tasks of the validation classes that are solved after every epoch;
        the accuracy of the nearest prototype on them selects the best epoch.
    seed
        Seed of the initial weights, the order, the augmentation and the validation tasks.

    Examples
    --------
    >>> config = TrainConfig(backbone="resnet18")
    >>> [round(config.learning_rate_at(epoch), 6) for epoch in (0, 44, 45, 65, 66, 89)]
    [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    """

    epochs: int = 90
    batch_size: int | None = None
    learning_rate: float = 0.1
    drops: tuple[float, ...] = (45 / 90, 66 / 90)
    weight_decay: float = 1e-4
    train_crop: int | None = None
    label_smoothing: float = 0.1
    classifier: Literal["linear", "cosine"] = "linear"
    classifier_scale: float = 10.0
    classifier_scaling: Literal["fixed", "learned", "per-class"] = "learned"
    margin: float = 0.0
    rotation_weight: float = 0.0
    mixup: float = 0.0
    mixup_start: float = 0.0
    distillation_weight: float = 0.5
    distillation_temperature: float = 4.0

    def batch(self) -> tuple[str, int]:
        """Return the name of the batch size, and the one in use."""
        return "batch_size", self.images_per_step()

    def defaults(self) -> Self:
        """Return the published settings for the same network."""
        return type(self)(backbone=self.backbone)

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a value is not allowed."""
        super().validate()
        if self.train_crop is not None:
            checks.at_least("train_crop", self.train_crop, *_CROPS)
        checks.share_below_one("label_smoothing", self.label_smoothing)
        for name in ("rotation_weight", "mixup"):
            checks.not_negative(name, getattr(self, name))
        checks.share_below_one("mixup_start", self.mixup_start)
        checks.positive("distillation_temperature", self.distillation_temperature)
        checks.between("distillation_weight", self.distillation_weight, 0, 1)
        self._validate_classifier()

    def _validate_classifier(self) -> None:
        checks.one_of("classifier", self.classifier, CLASSIFIERS)
        checks.one_of("classifier_scaling", self.classifier_scaling, SCALINGS)
        checks.positive("classifier_scale", self.classifier_scale)
        checks.between("margin", self.margin, -1, 1)
        if self.margin and (self.classifier, self.classifier_scaling) != ("cosine", "fixed"):
            raise InvalidArgumentError(
                "margin must be 0 unless classifier is 'cosine' and classifier_scaling 'fixed'; "
                f"got {self.margin!r}."
            )

    def images_per_step(self) -> int:
        """Return the batch size in use."""
        if self.batch_size is not None:
            return self.batch_size
        return _PUBLISHED_BATCH.get(self.backbone, 256)

    def mixes_in(self, epoch: int) -> bool:
        """Return whether images are mixed in an epoch, counted from 0."""
        return self.mixup > 0 and epoch >= self.mixup_start * self.epochs - 1e-9

    def smoothing_over_all(self, n_classes: int) -> float:
        r"""Return the label smoothing as PyTorch counts it.

        PyTorch spreads :math:`\epsilon'` over all :math:`C` classes, the recipe spreads
        :math:`\epsilon` over the :math:`C - 1` wrong ones:
        :math:`\epsilon' = \epsilon C / (C - 1)` gives the same targets.

        Raises
        ------
        InvalidArgumentError
            If the wrong classes would get larger targets than the true one.
        """
        largest = 1 - 1 / n_classes
        if self.label_smoothing > largest:
            raise InvalidArgumentError(
                f"label_smoothing must be at most {largest:g} for {n_classes} classes; "
                f"got {self.label_smoothing!r}."
            )
        return min(1.0, self.label_smoothing / largest)
