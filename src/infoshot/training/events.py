"""TensorBoard event files; the package ``tensorboard`` is needed only when they are written."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infoshot.core.errors import MissingDependencyError
from infoshot.training.records import EpochRecord

EVENTS_NAME = "tensorboard"
_TAGS = {
    "loss/train": "loss",
    "accuracy/train": "train_accuracy",
    "accuracy/validation": "val_accuracy",
    "learning_rate": "learning_rate",
    "images_per_second": "images_per_second",
}


def summary_writer() -> Any:  # noqa: ANN401 - PyTorch does not type it
    """Return the class that writes event files.

    Raises
    ------
    MissingDependencyError
        If ``tensorboard`` is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingDependencyError(
            "tensorboard=True needs the package tensorboard; pip install 'infoshot[tensorboard]'."
        ) from error
    return SummaryWriter


class EventLog:
    """Event files of a run: one step per epoch.

    Opening replaces the event files in the folder by the finished epochs, so that a killed and
    resumed run has every step once. Times are those that the epochs took.
    """

    def __init__(self, folder: Path, records: Sequence[EpochRecord]) -> None:
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._time = time.time() - sum(record.seconds for record in records)
        self._writer = summary_writer()(str(folder))
        for record in records:
            self.write(record)

    def write(self, record: EpochRecord) -> None:
        """Write an epoch."""
        self._time += record.seconds
        for tag, name in _TAGS.items():
            value = getattr(record, name)
            if value is not None:
                self._writer.add_scalar(tag, value, record.epoch, walltime=self._time)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
