"""TensorBoard event files; the package ``tensorboard`` is needed only when they are written."""

import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.errors import MissingDependencyError
from infoshot.training.records import EpochRecord

EVENTS_NAME = "tensorboard"
_RECORD_NAME = ".infoshot-events"
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

    Opening replaces the event files of the run by the finished epochs, so that a killed and resumed
    run has every step once. Event files that others put into the folder are kept. Times are those
    that the epochs took.
    """

    def __init__(self, folder: Path, records: Sequence[EpochRecord]) -> None:
        make_folder(folder)
        ending = f".infoshot-{_read_token(folder / _RECORD_NAME)}"
        for old in folder.glob(f"events.out.tfevents.*{ending}"):
            old.unlink()
        self._time = time.time() - sum(record.seconds for record in records)
        self._writer = summary_writer()(str(folder), filename_suffix=ending)
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


def _read_token(record: Path) -> str:
    """Read the token in the names of the event files of a run; make one at the first time."""
    token = record.read_text("latin-1").strip() if record.is_file() else ""
    if not re.fullmatch("[0-9a-f]{16}", token):
        token = secrets.token_hex(8)
        write_atomically(record, f"{token}\n")
    return token
