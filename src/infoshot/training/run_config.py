"""The settings that base training and episodic training share: descent, augmentation, seed."""

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.images.augmentation import CROP_AREA, CROP_ASPECT, JITTER
from infoshot.tasks.sampler import TaskSpec

SCHEDULES = ("step", "cosine")
MOST_REPEATS = 10**6  # epochs and validation tasks


@dataclass(frozen=True, kw_only=True)
class RunConfig(ABC):
    r"""Settings of any training run; ``TrainConfig`` and ``EpisodicConfig`` derive from it.

    Parameters
    ----------
    backbone
        Name of the network, or ``package.module:Name``.
    epochs
        Number of epochs.
    learning_rate
        Learning rate of the first epoch.
    schedule
        ``"step"``: multiply the learning rate by ``drop_factor`` at each of ``drops``.
        ``"cosine"``: :math:`\frac12 (1 + \cos(\pi e / E))` times the learning rate in epoch
        :math:`e` of :math:`E`, counted from 0.
    drops
        Shares of the epochs after which the rate drops.
    drop_factor
        Factor of each drop.
    momentum, nesterov
        Momentum of the descent, and whether to use Nesterov's form.
    weight_decay
        Weight decay of all parameters.
    crop_area
        Smallest share of the image that a random crop covers.
    crop_aspect
        Smallest and largest ratio of width to height of a random crop.
    jitter
        Largest relative change of brightness, contrast and colour; 0 turns it off.
    flip
        Whether to mirror half of the training images.
    val_tasks
        Number of tasks of the validation classes that are solved after every epoch.
    seed
        Seed of everything that is drawn.
    """

    backbone: str
    epochs: int
    learning_rate: float
    schedule: Literal["step", "cosine"] = "step"
    drops: tuple[float, ...] = ()
    drop_factor: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    crop_area: float = CROP_AREA
    crop_aspect: tuple[float, float] = CROP_ASPECT
    jitter: float = JITTER
    flip: bool = True
    val_tasks: int = 500
    seed: int = 0

    @abstractmethod
    def batch(self) -> tuple[str, int]:
        """Return the setting that says what a step takes over all processes, and its value."""

    @abstractmethod
    def defaults(self) -> Self:
        """Return a run of the same kind with default settings."""

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a value is not allowed."""
        for name in ("epochs", "val_tasks"):
            checks.at_least(name, getattr(self, name), 1, MOST_REPEATS)
        checks.at_least(*self.batch(), 1)
        checks.positive("learning_rate", self.learning_rate)
        checks.one_of("schedule", self.schedule, SCHEDULES)
        for share in self.drops:
            checks.below_one("drops", share)
        for name in ("drop_factor", "crop_area"):
            checks.positive(name, getattr(self, name))
        checks.share_below_one("momentum", self.momentum)
        checks.not_negative("weight_decay", self.weight_decay)
        for name in ("nesterov", "flip"):
            checks.one_of(name, getattr(self, name), (True, False))
        if self.nesterov and not self.momentum:
            raise InvalidArgumentError("nesterov must be False without momentum; got True.")
        checks.not_negative("jitter", self.jitter)
        for name in ("drop_factor", "crop_area", "jitter"):
            if getattr(self, name) > 1:
                raise InvalidArgumentError(f"{name} must be at most 1; got {getattr(self, name)}.")
        self._validate_aspect()
        TaskSpec(seed=self.seed).validate()

    def _validate_aspect(self) -> None:
        for aspect in self.crop_aspect:
            checks.positive("crop_aspect", aspect)
        if len(self.crop_aspect) != 2 or self.crop_aspect[0] > self.crop_aspect[1]:
            raise InvalidArgumentError(
                "crop_aspect must be the smallest and the largest ratio of width to height; "
                f"got {list(self.crop_aspect)}."
            )

    def check_processes(self, n_processes: int) -> None:
        """Raise ``InvalidArgumentError`` if the processes cannot share a batch evenly."""
        name, size = self.batch()
        if size % n_processes:
            raise InvalidArgumentError(
                f"{name} must be a multiple of the number of processes, {n_processes}; got {size}."
            )

    def learning_rate_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        n_drops = sum(epoch >= share * self.epochs - 1e-9 for share in self.drops)
        return self.learning_rate * self.drop_factor**n_drops

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON values, with the batch size in use."""
        values = {**asdict(self), **dict([self.batch()])}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
