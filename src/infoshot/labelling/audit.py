"""Check a run by hand: a random sample to look at, and what the answers say."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.errors import DataError
from infoshot.labelling.photo import PhotoLabel
from infoshot.metrics import wilson_interval

AUDIT_COLUMNS = ("path", "label", "truth")


@dataclass(frozen=True)
class AuditLine:
    """How many photos of a class, by its label, were checked and found right."""

    name: str
    n_right: int
    n_checked: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share that is right."""
        return wilson_interval(self.n_right, self.n_checked)

    def words(self) -> str:
        """The share with its interval, in percent."""
        if not self.n_checked:
            return "not checked"
        low, high = self.interval
        return f"{self.n_right / self.n_checked:.1%} ({low:.1%} to {high:.1%})"


def audit_sample(photos: Sequence[PhotoLabel], n: int, seed: int) -> list[PhotoLabel]:
    """Photos drawn at random from all that have a label and were not given one by hand."""
    labelled = [photo for photo in photos if photo.label and photo.reason != "given"]
    if not labelled:
        raise DataError("there is no photo with a label to check.")
    order = torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))
    return [labelled[number] for number in sorted(order[:n].tolist())]


def audit_csv(sample: Iterable[PhotoLabel]) -> str:
    """A sheet to fill in: the column ``truth`` is empty."""
    return csv_text(AUDIT_COLUMNS, ((photo.path, photo.label, "") for photo in sample))


def read_answers(path: Path) -> dict[str, str]:
    """The truth by path, from a sheet that was filled in; lines without an answer are left out.

    Raises
    ------
    DataError
        If it is no such sheet, or no line has an answer.
    """
    rows = read_csv(path, "path", "truth")
    answers = {row["path"]: row["truth"].strip() for row in rows if row["truth"].strip()}
    if not answers:
        raise DataError(f"{path}: no line has an answer in the column 'truth'.")
    return answers


def audited(photos: Sequence[PhotoLabel], answers: Mapping[str, str]) -> list[AuditLine]:
    """All together, then every class that has photos; labels given by hand do not count.

    Raises
    ------
    DataError
        If an answer is for no photo of the run, or all are for photos whose label was given.
    """
    label_of = {photo.path: photo.label for photo in photos}
    for path in answers:
        if path not in label_of:
            raise DataError(f"the answers name '{path}', which is no photo of this run.")
    by_hand = {photo.path for photo in photos if photo.reason == "given"}
    answers = {path: truth for path, truth in answers.items() if path not in by_hand}
    if not answers:
        raise DataError("all answers are for photos whose label was given by hand.")
    checked = Counter(label_of[path] for path in answers)
    right = Counter(label_of[path] for path, truth in answers.items() if truth == label_of[path])
    names = sorted({label for label in label_of.values() if label})
    lines = [AuditLine(name, right[name], checked[name]) for name in names]
    return [AuditLine("all", right.total(), checked.total()), *lines]
