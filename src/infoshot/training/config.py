"""The settings of base training; their defaults are the published recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, final

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.training.run_config import RunConfig

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
    label_smoothing
        Probability that the target spreads evenly over the wrong classes.
    rotation_weight
        Weight of rotation prediction, which also adds a turned copy of every batch; 0 turns it off.
    mixup
        Parameter of the Beta distribution of manifold mixup; 0 turns it off.
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
    label_smoothing: float = 0.1
    rotation_weight: float = 0.0
    mixup: float = 0.0
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
        checks.share_below_one("label_smoothing", self.label_smoothing)
        for name in ("rotation_weight", "mixup"):
            checks.not_negative(name, getattr(self, name))
        checks.positive("distillation_temperature", self.distillation_temperature)
        checks.between("distillation_weight", self.distillation_weight, 0, 1)

    def images_per_step(self) -> int:
        """Return the batch size in use."""
        if self.batch_size is not None:
            return self.batch_size
        return _PUBLISHED_BATCH.get(self.backbone, 256)

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
