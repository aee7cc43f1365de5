"""What is said of one photo of the pile."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PhotoLabel:
    """One line of labels.csv."""

    path: str  # as in labels.csv: printable, always valid UTF-8
    file: Path  # where to open it (may have a non-UTF-8 name)
    label: str  # "" if unreadable or withheld
    confidence: float  # nan if unreadable
    runner_up: str
    margin: float
    status: str  # labelled | unsure | outlier | unreadable
    reason: str
