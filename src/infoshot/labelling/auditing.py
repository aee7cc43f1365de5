"""Audit a run: a random sample that a person checks, and the accuracy that the answers show."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from infoshot.core import checks
from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.errors import DataError
from infoshot.core.label_names import NONE, GivenLabel, collect_labels, read_label
from infoshot.core.outputs import write_output
from infoshot.core.spreadsheet import guard_rows, unguard_formula
from infoshot.core.types import AnyPath
from infoshot.labelling.corrections import ImageNames
from infoshot.labelling.decide import CORRECTED, ImageLabel
from infoshot.labelling.output_checks import AUDIT_COLUMNS, choose_sheet
from infoshot.labelling.run_folder import FinishedRun, read_run
from infoshot.metrics import wilson_interval


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
    """The images to check, and the CSV file to fill in.

    ``note`` says why it is another file than the one that was asked for; empty if it is not.

    Examples
    --------
    >>> from infoshot import draw_audit
    >>> sample = draw_audit("run", n=3)
    >>> len(sample.images), sample.sheet.as_posix()
    (3, 'run/audit.csv')
    """

    images: list[ImageLabel]
    sheet: Path
    note: str = ""


@dataclass(frozen=True)
class AuditResult:
    """Accuracy of the labels by the answers of a person.

    ``lines`` has the accuracy over all images first, then per class. ``unknown_classes`` are
    answers that are neither a class of the run nor ``(none)``; they count as errors.

    Examples
    --------
    >>> from infoshot import audit
    >>> line = audit("run", "answers.csv").lines[0]
    >>> line.n_correct, line.n_checked
    (1, 2)
    """

    lines: list[AuditLine]
    unknown_classes: list[str]


def draw_audit(
    run: AnyPath,
    *,
    n: int = 100,
    seed: int = 0,
    out: AnyPath | None = None,
    csv_safe: bool = False,
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
        it to :func:`audit`. A file that holds anything but a sheet without answers is kept: the
        sheet is then written beside it, with a number in its name.
    csv_safe
        As in :func:`label`, whose choice is kept.

    Returns
    -------
    The images, and the file.

    Raises
    ------
    DataError
        If there is no finished run, or the file is one of the run's own.

    Examples
    --------
    >>> draw_audit("run", n=100).sheet.as_posix()
    'run/audit.csv'
    """
    checks.at_least("n", n, 1)
    checks.seed("seed", seed)
    finished = read_run(Path(run))
    sheet, note = choose_sheet(Path(out) if out else Path(run) / "audit.csv")
    sample = _draw_sample(finished.labels, n, seed)
    csv_safe = csv_safe or finished.facts.get("csv_safe", False)
    write_output(sheet, _format_sheet(sample, csv_safe=csv_safe))
    return AuditSample(sample, sheet, note)


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
        If there is no finished run, the answers do not belong to it, an image has two answers, or
        an answer differs from a class only in case, spaces or Unicode form.

    Examples
    --------
    >>> audit("run", "answers.csv").lines[0].text()
    '50.0% (9.5% to 90.5%)'
    """
    finished = read_run(Path(run))
    truths = match_answers(Path(answers), finished)
    lines = score_answers(finished.labels, truths)
    unknown = sorted(set(truths.values()) - {*finished.facts["classes"], NONE})
    return AuditResult(lines, unknown)


def _draw_sample(labels: Sequence[ImageLabel], n: int, seed: int) -> list[ImageLabel]:
    """Draw images at random from all that have a label, except corrected ones."""
    labelled = [label for label in labels if label.label and label.reason != CORRECTED]
    if not labelled:
        raise DataError("no image has a label that could be checked.")
    order = torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))
    return [labelled[number] for number in sorted(order[:n].tolist())]


def _format_sheet(sample: Sequence[ImageLabel], *, csv_safe: bool) -> str:
    """Format a sample as a sheet whose column ``truth`` is to be filled in."""
    rows = ((label.path, label.label, "") for label in sample)
    return csv_text(AUDIT_COLUMNS, guard_rows(rows, csv_safe))


def read_answers(path: Path, classes: Collection[str] = ()) -> list[GivenLabel]:
    """Read the true classes from a sheet that was filled in; empty answers are skipped.

    Raises
    ------
    DataError
        If it is not such a sheet, or no line has an answer.
    """
    rows = enumerate(read_csv(path, "path", "truth"), 2)
    answers = [
        GivenLabel(row["path"], truth, f"row {number}")
        for number, row in rows
        if (truth := read_label(row["truth"], classes))
    ]
    if not answers:
        raise DataError(f"{path}: no line has an answer in the column 'truth'.")
    return answers


def match_answers(path: Path, run: FinishedRun) -> dict[str, str]:
    """Read the true classes by the paths of a run.

    Raises
    ------
    DataError
        Also if an image has two answers, or an answer is like a class but not equal.
    """
    names, classes = ImageNames(run.labels), {*run.facts["classes"], NONE}
    spell = unguard_formula if run.facts.get("csv_safe", False) else str
    answers = [
        dataclasses.replace(answer, image=names.find(spell(answer.image)) or answer.image)
        for answer in read_answers(path, classes)
    ]
    return collect_labels(str(path), answers, classes)


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
