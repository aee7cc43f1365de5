"""What is known after every epoch, and the log that holds it."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.core.atomic import write_atomically
from infoshot.core.environment import environment
from infoshot.distributed import Ranks


@dataclass(frozen=True)
class EpochRecord:
    """What is known after an epoch, counted from 1; accuracies in percent."""

    epoch: int
    learning_rate: float
    loss: float
    train_accuracy: float
    val_accuracy: float | None
    val_ci95: float | None
    images_per_second: float
    seconds: float

    def sentence(self, n_epochs: int) -> str:
        """All of it in a line for people."""
        val = ""
        if self.val_accuracy is not None:
            val = f"validation {self.val_accuracy:.2f} ± {self.val_ci95:.2f} %, "
        return (
            f"epoch {self.epoch}/{n_epochs}: loss {self.loss:.3f}, "
            f"train {self.train_accuracy:.1f} %, {val}{self.images_per_second:,.0f} images/s"
        )


def best_epoch(records: Sequence[EpochRecord]) -> int:
    """Number of the epoch with the best validation, the first of equals; without one, the last."""
    if records[-1].val_accuracy is None:
        return len(records)
    return max(records, key=lambda record: (record.val_accuracy or 0, -record.epoch)).epoch


def write_log(
    path: Path, records: Sequence[EpochRecord], config: Mapping[str, Any], ranks: Ranks
) -> None:
    """Write JSON lines: first the settings and the machine, then a line per epoch.

    The log is written anew each time, so an interrupted run leaves no line twice or in half.
    """
    head = {
        "config": dict(config),
        "processes": ranks.size,
        "device": ranks.device,
        "environment": environment(ranks.device),
    }
    lines = [head, *(dataclasses.asdict(record) for record in records)]
    write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
