"""The names of the classes, where they are given without examples or beside them."""

from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path

from infoshot.core.csv_file import read_text
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.label_names import NONE, GivenLabel, collect_labels, strip_name
from infoshot.core.types import AnyPath


def read_class_names(given: AnyPath | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the classes, from a text file with one per line or from a sequence.

    White space around names is removed.

    Raises
    ------
    DataError
        If the file cannot be read, a line is blank, a class is there twice, two names are alike,
        or there are fewer than two.
    InvalidArgumentError
        If it is neither a path nor texts.
    """
    if isinstance(given, str | PathLike):
        source, lines = str(given), _read_lines(Path(given))
    else:
        source, lines = "classes", list(given)
        if not all(isinstance(name, str) for name in lines):
            raise InvalidArgumentError(
                f"classes must be a file or names of classes; got {given!r}."
            )
    names = [strip_name(line) for line in lines]
    first = dict[str, int]()
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{source}: line {number} is blank; write one class on every line.")
        if name == NONE:
            raise DataError(f"{source}: '{NONE}' means 'none of the classes'; rename this class.")
        if first.setdefault(name, number) != number:
            raise DataError(
                f"{source}: the class '{name}' is on the lines {first[name]} and {number}; write "
                "every class once."
            )
    places = (f"line {number}" for number in range(1, len(names) + 1))
    collect_labels(
        source, (GivenLabel(place, name, place) for place, name in zip(places, names, strict=True))
    )
    if len(names) < 2:
        raise DataError(
            f"{source}: at least two classes are needed, one on every line; got {len(names)}."
        )
    return tuple(names)


def warn_names_alone(classes: Sequence[str], labels: Collection[str]) -> list[str]:
    """Say how many classes have no example that is labelled so."""
    n = len(set(classes) - set(labels))
    if not n:
        return []
    return [
        f"{n} of {len(classes)} classes have no examples: their labels rest on the names alone, "
        "and nothing shows yet how well these fit. Label some photos."
    ]


def _read_lines(path: Path) -> list[str]:
    """Read the lines of a file, without blank ones at its end."""
    if not path.is_file():
        raise DataError(f"{path}: this file with the names of the classes does not exist.")
    return read_text(path).rstrip().splitlines()
