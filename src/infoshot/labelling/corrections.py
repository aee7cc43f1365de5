"""Labels that a person gives to images of a run: read, matched with the images, applied."""

import dataclasses
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.label_names import (
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
from infoshot.labelling.decide import Example, ImageLabel
from infoshot.labelling.run_files import CORRECTIONS, RunFacts


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
        return read_labels(Path(given), known=classes, csv_safe=csv_safe)
    corrections = [
        (locate_image(str(path)), read_label(_text(label), classes), f"'{path}'")
        for path, label in given.items()
    ]
    corrections = [correction for correction in corrections if correction[1]]
    if not corrections:
        raise InvalidArgumentError("corrections must hold at least one label; got none.")
    return corrections


def match_corrections(
    given: AnyPath | Mapping[str, str],
    known: Iterable[ImageLabel | ImageFile],
    classes: Collection[str],
    *,
    csv_safe: bool,
) -> dict[str, str]:
    """Return the labels that a person gives by the paths under which a run knows the images.

    An image that the run does not know has its absolute path.

    Raises
    ------
    DataError
        If an image has two labels, or a label is like a class but not equal.
    """
    names = ImageNames(known)
    source = "corrections" if isinstance(given, Mapping) else str(given)
    return collect_labels(
        source,
        (
            GivenLabel(names.find(i.path, i.file) or escape_name(i.file.absolute()), label, place)
            for i, label, place in read_given(given, classes, csv_safe=csv_safe)
        ),
        classes,
    )


def read_corrections(folder: Path, facts: RunFacts) -> dict[str, str]:
    """Read the labels that a person gave after the first run, by path.

    Raises
    ------
    DataError
        If the file cannot be read, or gives an image two labels.
    """
    path, classes = folder / CORRECTIONS, facts["classes"]
    if not path.is_file():
        return {}
    read = unguard_formula if facts.get("csv_safe", False) else str
    given = []
    for number, row in enumerate(read_csv(path, "path", "label"), 2):
        label = read(row["label"])
        label = label if label in classes else strip_name(label)  # edited by hand
        if label:
            given.append(GivenLabel(read(row["path"]), label, f"row {number}"))
    return collect_labels(str(path), given, {*classes, *(new.label for new in given)})


def format_corrections(corrections: Mapping[str, str], *, csv_safe: bool) -> str:
    """Format what :func:`read_corrections` reads."""
    return csv_text(("path", "label"), guard_rows(corrections.items(), csv_safe))


def apply_corrections(
    examples: Sequence[Example],
    images: Sequence[ImageFile],
    digests: Sequence[tuple[str, str]],
    corrections: Mapping[str, str],
) -> list[Example]:
    """Add corrected images to the examples; a corrected example changes its label."""
    place = {image.path: number for number, image in enumerate(images)}
    of_example = {example.image.path: number for number, example in enumerate(examples)}
    found, label_of = list(examples), dict[str, tuple[str, str]]()
    for path, label in corrections.items():
        number = place.get(path)
        if number is not None:
            digest, reason = digests[number]
            if reason:
                raise DataError(f"{path}: {reason}, so it cannot be an example.")
            other, other_path = label_of.setdefault(digest, (label, path))
            if other != label:
                raise DataError(
                    f"the same image is corrected to '{other}' and to '{label}': {other_path} and "
                    f"{path}."
                )
            found.append(Example(label, images[number], digest, given=True))
        elif path in of_example:
            found[of_example[path]] = dataclasses.replace(examples[of_example[path]], label=label)
        else:
            image = locate_image(path)
            ((digest, reason),) = digest_images([image.location], 1)
            if reason:
                raise DataError(f"{path}: not an image of this run, and not a readable file.")
            found.append(Example(label, image, digest, given=True))
    return found


def _absolute(path: AnyPath) -> str:
    """Return an absolute path without dots; links are kept, since each is an image of its own."""
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links


def _text(label: object) -> str:
    """Return a label as text; nothing for the empty cells of a table in Python."""
    is_empty = label is None or (isinstance(label, float) and math.isnan(label))
    return "" if is_empty else str(label)
