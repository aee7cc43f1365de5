"""The published recipe of base training, and what may be changed about it."""

from collections.abc import Mapping
from dataclasses import dataclass

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.tasks.sampler import TaskSpec

_PUBLISHED_BATCH: Mapping[str, int] = {"wrn28-10": 128}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Stochastic gradient descent on the smoothed cross-entropy, as published for TIM.

    Parameters
    ----------
    backbone
        Name of the network.
    epochs
        Passes over the training images.
    batch_size
        Images per step, over all processes; by default 256, and 128 for ``wrn28-10``.
    learning_rate
        Of the first epochs; it is divided by ten after each share of the epochs in ``drops``, which
        for 90 epochs is at 45 and 66.
    momentum, weight_decay
        Of the descent; all parameters decay.
    label_smoothing
        Probability that is spread evenly over the wrong classes.
    val_tasks
        5-way 1-shot tasks of the validation classes, after every epoch; the nearest prototype's
        accuracy on them says which epoch is best.
    seed
        Of the first weights, the order, the augmentation and the validation tasks.
    """

    backbone: str
    epochs: int = 90
    batch_size: int | None = None
    learning_rate: float = 0.1
    drops: tuple[float, ...] = (45 / 90, 66 / 90)
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.1
    val_tasks: int = 500
    seed: int = 0

    def validate(self) -> None:
        """Raise ``InvalidArgumentError`` if a number is not allowed."""
        checks.at_least("epochs", self.epochs, 1)
        checks.at_least("batch_size", self.images_per_step(), 1)
        checks.positive("learning_rate", self.learning_rate)
        for name in ("momentum", "label_smoothing"):
            value = getattr(self, name)
            checks.not_negative(name, value)
            if value >= 1:
                raise InvalidArgumentError(f"{name} must be below 1; got {value!r}.")
        checks.not_negative("weight_decay", self.weight_decay)
        checks.at_least("val_tasks", self.val_tasks, 1)
        TaskSpec(seed=self.seed).validate()
        for share in self.drops:
            if not 0 < share < 1:
                raise InvalidArgumentError(
                    f"drops must be shares of the epochs between 0 and 1; got {share!r}."
                )

    def check_shared(self, n_processes: int) -> None:
        """Raise ``InvalidArgumentError`` if so many processes cannot share a batch evenly."""
        if self.images_per_step() % n_processes:
            raise InvalidArgumentError(
                f"batch_size must be a multiple of the {n_processes} processes that share it; "
                f"got {self.images_per_step()}."
            )

    def images_per_step(self) -> int:
        """Return the batch size that is used."""
        if self.batch_size is not None:
            return self.batch_size
        return _PUBLISHED_BATCH.get(self.backbone, 256)

    def learning_rate_at(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0.

        Examples
        --------
        >>> config = TrainConfig(backbone="resnet18")
        >>> [round(config.learning_rate_at(epoch), 6) for epoch in (0, 44, 45, 65, 66, 89)]
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
        """
        n_drops = sum(epoch >= share * self.epochs - 1e-9 for share in self.drops)
        return self.learning_rate * 0.1**n_drops
