"""Audit a run: a random sample that a person checks, and the accuracy that the answers show."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from infoshot.core import checks
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.errors import DataError
from infoshot.core.types import AnyPath
from infoshot.labelling.decide import CORRECTED, ImageLabel
from infoshot.labelling.run_folder import read_run
from infoshot.metrics import wilson_interval

_COLUMNS = ("path", "label", "truth")


@dataclass(frozen=True)
class AuditLine:
    """How many images that were labelled as a class were checked, and were correct."""

    name: str
    n_correct: int
    n_checked: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy."""
        return wilson_interval(self.n_correct, self.n_checked)

    def text(self) -> str:
        """Format the accuracy with its interval, in percent."""
        if not self.n_checked:
            return "not checked"
        low, high = self.interval
        return f"{self.n_correct / self.n_checked:.1%} ({low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class AuditSample:
    """The images to check, and the CSV file to fill in."""

    images: list[ImageLabel]
    sheet: Path


@dataclass(frozen=True)
class AuditResult:
    """Accuracy of the labels by the answers of a person.

    ``lines`` has the accuracy over all images first, then per class. ``unknown_classes`` are
    answers that are not a class of the run; they count as errors.
    """

    lines: list[AuditLine]
    unknown_classes: list[str]


def draw_audit(
    run: AnyPath, *, n: int = 100, seed: int = 0, out: AnyPath | None = None
) -> AuditSample:
    """Draw images of a run at random for a person to check.

    Parameters
    ----------
    run
        Folder of a finished run.
    n, seed
        How many, and the seed of the draw.
    out
        CSV file to write; by default audit.csv in the run. Fill in its column ``truth`` and pass
        it to :func:`audit`.

    Returns
    -------
    The images, and the file.

    Raises
    ------
    DataError
        If there is no finished run, or the default file has answers already.

    Examples
    --------
    >>> draw_audit("run", n=100).sheet  # doctest: +SKIP
    PosixPath('run/audit.csv')
    """
    checks.at_least("n", n, 1)
    checks.seed("seed", seed)
    finished = read_run(Path(run))
    sheet = Path(out) if out else Path(run) / "audit.csv"
    if out is None and _has_answers(sheet):
        raise DataError(
            f"{sheet}: has answers already; evaluate them (infoshot.audit, or pass "
            f"answers={sheet}), or choose another file."
        )
    check_outputs([], [sheet])
    sample = _draw_sample(finished.labels, n, seed)
    write_atomically(sheet, _format_sheet(sample))
    return AuditSample(sample, sheet)


def audit(run: AnyPath, answers: AnyPath) -> AuditResult:
    """Estimate the accuracy of a run from the answers of a person.

    Parameters
    ----------
    run
        Folder of a finished run.
    answers
        The sheet of :func:`draw_audit` with its column ``truth`` filled in.

    Returns
    -------
    Accuracy with Wilson's 95 % interval, over all images and per class.

    Raises
    ------
    DataError
        If there is no finished run, or the answers do not belong to it.

    Examples
    --------
    >>> audit("run", "run/audit.csv").lines[0].text()  # doctest: +SKIP
    '94.0% (87.5% to 97.2%)'
    """
    finished = read_run(Path(run))
    truths = read_answers(Path(answers))
    lines = score_answers(finished.labels, truths)
    unknown = sorted(set(truths.values()) - set(finished.facts["classes"]))
    return AuditResult(lines, unknown)


def _draw_sample(labels: Sequence[ImageLabel], n: int, seed: int) -> list[ImageLabel]:
    """Draw images at random from all that have a label, except corrected ones."""
    labelled = [label for label in labels if label.label and label.reason != CORRECTED]
    if not labelled:
        raise DataError("no image has a label that could be checked.")
    order = torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))
    return [labelled[number] for number in sorted(order[:n].tolist())]


def _format_sheet(sample: Sequence[ImageLabel]) -> str:
    """Format a sample as a sheet whose column ``truth`` is to be filled in."""
    return csv_text(_COLUMNS, ((label.path, label.label, "") for label in sample))


def read_answers(path: Path) -> dict[str, str]:
    """Read the true classes by path from a sheet that was filled in; empty answers are skipped.

    Raises
    ------
    DataError
        If it is not such a sheet, or no line has an answer.
    """
    rows = read_csv(path, "path", "truth")
    answers = {row["path"]: row["truth"].strip() for row in rows if row["truth"].strip()}
    if not answers:
        raise DataError(f"{path}: no line has an answer in the column 'truth'.")
    return answers


def score_answers(labels: Sequence[ImageLabel], answers: Mapping[str, str]) -> list[AuditLine]:
    """Count correct labels over all images, then per class; corrected images do not count.

    Raises
    ------
    DataError
        If an answer is for an image that the run does not have, or all are for corrected images.
    """
    label_of = {label.path: label.label for label in labels}
    for path in answers:
        if path not in label_of:
            raise DataError(f"the answers name '{path}', which is not an image of this run.")
    corrected = {label.path for label in labels if label.reason == CORRECTED}
    answers = {path: truth for path, truth in answers.items() if path not in corrected}
    if not answers:
        raise DataError("all answers are for images whose label was corrected.")
    checked = Counter(label_of[path] for path in answers)
    correct = Counter(label_of[path] for path, truth in answers.items() if truth == label_of[path])
    names = sorted({label for label in label_of.values() if label})
    lines = [AuditLine(name, correct[name], checked[name]) for name in names]
    return [AuditLine("all", correct.total(), checked.total()), *lines]


def _has_answers(sheet: Path) -> bool:
    try:
        return sheet.exists() and bool(read_answers(sheet))
    except DataError:
        return False
