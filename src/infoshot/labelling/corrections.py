"""Labels that a person gives to images of a run: read, matched with the images, applied."""

import dataclasses
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.label_names import (
    NONE,
    GivenLabel,
    collect_labels,
    read_label,
    spell_path,
    strip_name,
)
from infoshot.core.spreadsheet import guard_rows, unguard_formula
from infoshot.core.text import escape_name
from infoshot.core.types import AnyPath
from infoshot.features.extract import digest_images
from infoshot.images.folders import ImageFile, locate_image, read_labels
from infoshot.labelling.answer_log import Answer, apply_entries, read_entries
from infoshot.labelling.decide import Example, ImageLabel
from infoshot.labelling.run_files import CORRECTIONS, RunFacts

_AUDIT = "audit"  # in the column 'source' of corrections.csv


@dataclass(frozen=True)
class Corrections:
    """The answers of a person by path, and how many entries of the review's log they contain."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    n_entries: int = 0


@dataclass(frozen=True)
class Known:
    """What is known before a solve.

    Parameters
    ----------
    examples
        The labelled images that the solver learns from.
    dropped
        Examples that belong to none of the classes by the answer of a person.
    fixed
        Labels by digest of the other images that a person answered: those of the audit, and those
        that belong to none of the classes (``NONE``).
    """

    examples: list[Example]
    dropped: Sequence[Example] = ()
    fixed: Mapping[str, str] = field(default_factory=dict)


class ImageNames:
    """Finds the path under which a run knows an image that a user names by path or by file."""

    def __init__(self, known: Iterable[ImageLabel | ImageFile]) -> None:
        self._paths, self._of_file = set[str](), dict[str, str]()
        for image in known:
            self._paths.add(image.path)
            self._of_file.setdefault(_absolute(image.file), image.path)

    def find(self, path: str, file: Path | None = None) -> str | None:
        """Return the path of an image; ``None`` if the run does not know it."""
        spellings = spell_path(path)
        for text in spellings:
            if text in self._paths:
                return text
        for place in (file or path, *spellings):
            if (wanted := _absolute(place)) in self._of_file:
                return self._of_file[wanted]
        return None


def read_given(
    given: AnyPath | Mapping[str, str], classes: Collection[str], *, csv_safe: bool
) -> list[tuple[ImageFile, str, str]]:
    """Read the labels that a person gives, from a CSV file or a mapping of paths.

    ``csv_safe`` says how the run writes its sheets.

    Returns
    -------
    Images, labels, and the places that they are from. Images without a label are left out.
    """
    if not isinstance(given, Mapping):
        labels = read_labels(Path(given), known=classes, csv_safe=csv_safe)
        _check_sheet(Path(given))
        return labels
    corrections = [
        (locate_image(str(path)), read_label(_text(label), classes), f"'{path}'")
        for path, label in given.items()
    ]
    corrections = [correction for correction in corrections if correction[1]]
    if not corrections:
        raise InvalidArgumentError("corrections must hold at least one label; got none.")
    return corrections


def _check_sheet(path: Path) -> None:
    """Refuse sheets whose labels are those of the run, which nobody has checked."""
    columns = read_csv(path, "path")[0].keys() if path.suffix.lower() == ".csv" else ()
    if "truth" in columns:
        raise DataError(
            f"{path}: this is the sheet of an audit, whose column 'label' holds the labels of the "
            "run; pass it to audit as its answers. To correct labels with them, write a sheet with "
            "the columns path,label; they do not measure the accuracy any more then."
        )
    if {"confidence", "status"} <= set(columns):
        raise DataError(
            f"{path}: holds the labels of a run, not those of a person; pass a sheet with the "
            "columns path,label and only the images that you labelled."
        )


def match_corrections(
    given: AnyPath | Mapping[str, str],
    known: Iterable[ImageLabel | ImageFile],
    classes: Collection[str],
    *,
    csv_safe: bool,
) -> dict[str, Answer]:
    """Return the answers that a person gives by the paths under which a run knows the images.

    An image that the run does not know has its absolute path.

    Raises
    ------
    DataError
        If an image has two labels, or a label is like a class but not equal.
    """
    names, classes = ImageNames(known), {*classes, NONE}
    source = "corrections" if isinstance(given, Mapping) else str(given)
    labels = collect_labels(
        source,
        (
            GivenLabel(names.find(i.path, i.file) or escape_name(i.file.absolute()), label, place)
            for i, label, place in read_given(given, classes, csv_safe=csv_safe)
        ),
        classes,
    )
    return {path: Answer(label) for path, label in labels.items()}


def read_corrections(folder: Path, facts: RunFacts) -> Corrections:
    """Read the answers of a person: corrections.csv, and what was added to the log since.

    Raises
    ------
    DataError
        If a file cannot be read, or gives an image two labels.
    """
    n_entries = facts["review"]["n_entries"] if "review" in facts else 0
    later = [entry for entry in read_entries(folder) if entry.n > n_entries]
    answers = apply_entries(_read_sheet(folder / CORRECTIONS, facts), later)
    return Corrections(answers, later[-1].n if later else n_entries)


def _read_sheet(path: Path, facts: RunFacts) -> dict[str, Answer]:
    """Read corrections.csv."""
    if not path.is_file():
        return {}
    classes = facts["classes"]
    read = unguard_formula if facts.get("csv_safe", False) else str
    given, audited = [], set()
    for number, row in enumerate(read_csv(path, "path", "label"), 2):
        label = read(row["label"])
        label = label if label in classes else strip_name(label)  # edited by hand
        if label:
            given.append(GivenLabel(read(row["path"]), label, f"row {number}"))
        if row.get("source", "") == _AUDIT:
            audited.add(read(row["path"]))
    labels = collect_labels(str(path), given, {*classes, *(new.label for new in given)})
    return {image: Answer(label, image in audited) for image, label in labels.items()}


def format_corrections(answers: Mapping[str, Answer], *, csv_safe: bool) -> str:
    """Format what :func:`read_corrections` reads."""
    if not any(answer.audit for answer in answers.values()):
        rows = ((path, answer.label) for path, answer in answers.items())
        return csv_text(("path", "label"), guard_rows(rows, csv_safe))
    marked = ((path, a.label, _AUDIT if a.audit else "") for path, a in answers.items())
    return csv_text(("path", "label", "source"), guard_rows(marked, csv_safe))


def apply_corrections(
    examples: Sequence[Example],
    images: Sequence[ImageFile],
    digests: Sequence[tuple[str, str]],
    answers: Mapping[str, Answer],
) -> Known:
    """Add corrected images to the examples; a corrected example changes its label, or is dropped.

    Raises
    ------
    DataError
        If an image cannot be read, or the same image has two labels.
    """
    place = {image.path: number for number, image in enumerate(images)}
    of_example = {example.image.path: number for number, example in enumerate(examples)}
    own = list(examples)
    given, fixed, first = list[Example](), dict[str, str](), dict[str, tuple[Answer, str]]()
    for path, answer in answers.items():
        if path not in place and path in of_example:
            example = examples[of_example[path]]
            own[of_example[path]] = dataclasses.replace(
                example, label=answer.label, original=example.label
            )
            continue
        image, digest = _find_image(path, place, images, digests)
        other, other_path = first.setdefault(digest, (answer, path))
        if other.label != answer.label:
            raise DataError(
                f"the same image is corrected to '{other.label}' and to '{answer.label}': "
                f"{other_path} and {path}."
            )
        if answer.audit or answer.label == NONE:
            fixed[digest] = answer.label
        else:
            given.append(Example(answer.label, image, digest, given=True))
    kept = [example for example in own if example.label != NONE]
    return Known([*kept, *given], [example for example in own if example.label == NONE], fixed)


def _find_image(
    path: str,
    place: Mapping[str, int],
    images: Sequence[ImageFile],
    digests: Sequence[tuple[str, str]],
) -> tuple[ImageFile, str]:
    """Return an image of the run or another file, with its digest."""
    if path in place:
        digest, reason = digests[place[path]]
        if reason:
            raise DataError(f"{path}: {reason}, so it cannot be an example.")
        return images[place[path]], digest
    image = locate_image(path)
    ((digest, reason),) = digest_images([image.location], 1)
    if reason:
        raise DataError(
            f"{path}: has a correction, but is not an image of this run and not a readable file; "
            "restore it, or delete its row in the corrections."
        )
    return image, digest


def _absolute(path: AnyPath) -> str:
    """Return an absolute path without dots; links are kept, since each is an image of its own."""
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links


def _text(label: object) -> str:
    """Return a label as text; nothing for the empty cells of a table in Python."""
    is_empty = label is None or (isinstance(label, float) and math.isnan(label))
    return "" if is_empty else str(label)
