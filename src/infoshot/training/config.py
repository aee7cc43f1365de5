"""The settings of base training; their defaults are the published recipe."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.images.augmentation import CROP_AREA, CROP_ASPECT, JITTER
from infoshot.tasks.sampler import TaskSpec

SCHEDULES = ("step", "cosine")
CLASSIFIERS = ("linear", "cosine")
SCALINGS = ("fixed", "learned", "per-class")
_MOST_REPEATS = 10**6  # epochs and validation tasks
_PUBLISHED_BATCH: Mapping[str, int] = {"wrn28-10": 128}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    r"""Stochastic gradient descent on the label-smoothed cross-entropy, as published for TIM.

    Parameters
    ----------
    backbone
        Name of the network, or ``package.module:Name``.
    epochs
        Passes over the training images.
    batch_size
        Images per step over all processes; ``None``: 256, and 128 for ``wrn28-10``.
    learning_rate
        Learning rate of the first epoch.
    schedule
        ``"step"``: multiply the learning rate by ``drop_factor`` at each of ``drops``.
        ``"cosine"``: :math:`\frac12 (1 + \cos(\pi e / E))` times the learning rate in epoch
        :math:`e` of :math:`E`, counted from 0.
    drops
        Shares of the epochs after which the rate drops; the default is epoch 45 and 66 of 90.
    drop_factor
        Factor of each drop.
    momentum, nesterov
        Momentum of the descent, and whether to use Nesterov's form.
    weight_decay
        Weight decay of all parameters.
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
    crop_area
        Smallest share of the image that a random crop covers.
    crop_aspect
        Smallest and largest ratio of width to height of a random crop.
    jitter
        Largest relative change of brightness, contrast and colour; 0 turns it off.
    flip
        Whether to mirror half of the training images.
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
    """

    backbone: str
    epochs: int = 90
    batch_size: int | None = None
    learning_rate: float = 0.1
    schedule: Literal["step", "cosine"] = "step"
    drops: tuple[float, ...] = (45 / 90, 66 / 90)
    drop_factor: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    classifier: Literal["linear", "cosine"] = "linear"
    classifier_scale: float = 10.0
    classifier_scaling: Literal["fixed", "learned", "per-class"] = "learned"
    margin: float = 0.0
    crop_area: float = CROP_AREA
    crop_aspect: tuple[float, float] = CROP_ASPECT
    jitter: float = JITTER
    flip: bool = True
    rotation_weight: float = 0.0
    mixup: float = 0.0
    distillation_weight: float = 0.5
    distillation_temperature: float = 4.0
    val_tasks: int = 500
    seed: int = 0

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a value is not allowed."""
        for name in ("epochs", "val_tasks"):
            checks.at_least(name, getattr(self, name), 1, _MOST_REPEATS)
        checks.at_least("batch_size", self.images_per_step(), 1)
        checks.positive("learning_rate", self.learning_rate)
        checks.one_of("schedule", self.schedule, SCHEDULES)
        for share in self.drops:
            checks.below_one("drops", share)
        for name in ("drop_factor", "crop_area"):
            checks.positive(name, getattr(self, name))
        for name in ("momentum", "label_smoothing"):
            checks.share_below_one(name, getattr(self, name))
        for name in ("weight_decay", "rotation_weight", "mixup"):
            checks.not_negative(name, getattr(self, name))
        checks.positive("distillation_temperature", self.distillation_temperature)
        checks.between("distillation_weight", self.distillation_weight, 0, 1)
        for name in ("nesterov", "flip"):
            checks.one_of(name, getattr(self, name), (True, False))
        if self.nesterov and not self.momentum:
            raise InvalidArgumentError("nesterov must be False without momentum; got True.")
        checks.not_negative("jitter", self.jitter)
        for name in ("drop_factor", "crop_area", "jitter"):
            if getattr(self, name) > 1:
                raise InvalidArgumentError(f"{name} must be at most 1; got {getattr(self, name)}.")
        self._validate_aspect()
        self._validate_classifier()
        TaskSpec(seed=self.seed).validate()

    def _validate_aspect(self) -> None:
        for aspect in self.crop_aspect:
            checks.positive("crop_aspect", aspect)
        if len(self.crop_aspect) != 2 or self.crop_aspect[0] > self.crop_aspect[1]:
            raise InvalidArgumentError(
                "crop_aspect must be the smallest and the largest ratio of width to height; "
                f"got {list(self.crop_aspect)}."
            )

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

    def check_processes(self, n_processes: int) -> None:
        """Raise ``InvalidArgumentError`` if the processes cannot share a batch evenly."""
        if self.images_per_step() % n_processes:
            raise InvalidArgumentError(
                f"batch_size must be a multiple of the number of processes, {n_processes}; "
                f"got {self.images_per_step()}."
            )

    def images_per_step(self) -> int:
        """Return the batch size in use."""
        if self.batch_size is not None:
            return self.batch_size
        return _PUBLISHED_BATCH.get(self.backbone, 256)

    def learning_rate_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0.

        Examples
        --------
        >>> config = TrainConfig(backbone="resnet18")
        >>> [round(config.learning_rate_at(epoch), 6) for epoch in (0, 44, 45, 65, 66, 89)]
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
        """
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        n_drops = sum(epoch >= share * self.epochs - 1e-9 for share in self.drops)
        return self.learning_rate * self.drop_factor**n_drops

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

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON values, with the batch size in use."""
        values = {**asdict(self), "batch_size": self.images_per_step()}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
