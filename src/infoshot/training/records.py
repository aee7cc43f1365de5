"""The results of every epoch, and the log files that hold them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.core.atomic import write_atomically
from infoshot.core.csv_file import csv_text
from infoshot.core.environment import environment
from infoshot.distributed import Ranks

LOG_NAME, CSV_NAME = "log.jsonl", "log.csv"


@dataclass(frozen=True)
class EpochRecord:
    """The results of an epoch, counted from 1; accuracies are in percent.

    ``val_accuracy`` and the half-width ``val_ci95`` of its 95 % interval are ``None`` without
    validation classes.

    Examples
    --------
    >>> EpochRecord(1, 0.1, 2.345, 50.0, 40.0, 1.0, 100.0, 1.0).summary(n_epochs=3)
    'epoch 1/3: loss 2.345, train 50.0 %, validation 40.00 ± 1.00 %, 100 images/s'
    """

    epoch: int
    learning_rate: float
    loss: float
    train_accuracy: float
    val_accuracy: float | None
    val_ci95: float | None
    images_per_second: float
    seconds: float

    def summary(self, n_epochs: int) -> str:
        """Return the results as one line of text."""
        val = ""
        if self.val_accuracy is not None:
            val = f"validation {self.val_accuracy:.2f} ± {self.val_ci95:.2f} %, "
        return (
            f"epoch {self.epoch}/{n_epochs}: loss {self.loss:.3f}, "
            f"train {self.train_accuracy:.1f} %, {val}{self.images_per_second:,.0f} images/s"
        )


def best_epoch(records: Sequence[EpochRecord]) -> int:
    """Return the epoch of the highest validation accuracy, the first of equals.

    Without validation it is the last epoch.

    Examples
    --------
    >>> records = [
    ...     EpochRecord(epoch, 0.1, 1.0, 50.0, accuracy, 1.0, 100.0, 1.0)
    ...     for epoch, accuracy in enumerate((40.0, 45.0, 43.0), start=1)
    ... ]
    >>> best_epoch(records)
    2
    """
    if records[-1].val_accuracy is None:
        return len(records)
    return max(records, key=lambda record: (record.val_accuracy or 0, -record.epoch)).epoch


def write_log(
    path: Path, records: Sequence[EpochRecord], config: Mapping[str, Any], ranks: Ranks
) -> None:
    """Write JSON lines: first the settings and the machine, then a line per epoch.

    Each call writes the complete file, so an interrupted run leaves no duplicate or partial line.
    """
    head = {
        "config": dict(config),
        "processes": ranks.size,
        "device": ranks.device,
        "environment": environment(ranks.device),
    }
    lines = [head, *(dataclasses.asdict(record) for record in records)]
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))


def write_csv(path: Path, records: Sequence[EpochRecord]) -> None:
    """Write a CSV file with a row per epoch; the complete file, as :func:`write_log`."""
    rows = [dataclasses.asdict(record) for record in records]
    cells = [["" if value is None else str(value) for value in row.values()] for row in rows]
    write_atomically(path, csv_text(list(rows[0]), cells))


def is_complete(path: Path, n_epochs: int) -> bool:
    """Whether a log holds this number of epochs, after its first line."""
    return path.is_file() and path.read_bytes().count(b"\n") == n_epochs + 1
