"""Names that people type into sheets: white space around them, and names that look alike."""

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from infoshot.core.errors import DataError
from infoshot.core.spreadsheet import unguard_formula
from infoshot.core.text import check_class_name

NONE = "(none)"
"""The label of an image that belongs to none of the classes; no class has this name."""
# White space, and characters that nobody sees: zero width, direction marks, byte order mark.
_AROUND = r"[\s\u200b-\u200f\u2060\ufeff]+"
_STRIP = re.compile(f"^{_AROUND}|{_AROUND}$")


def strip_name(text: str) -> str:
    r"""Remove white space around a name, and characters there that nobody sees.

    Examples
    --------
    >>> strip_name(" red fox\u00a0")
    'red fox'
    """
    return _STRIP.sub("", text)


def read_label(text: str, known: Collection[str] = ()) -> str:
    """Return the label that a field of a sheet gives: stripped, without a guarding apostrophe.

    A class that is ``known`` is found with white space around it too, if it is named so.

    Examples
    --------
    >>> read_label("'=x "), read_label("'=x", ["'=x"]), read_label("cat", ["cat "])
    ('=x', "'=x", 'cat ')
    """
    for form in (text, strip_name(text), unguard_formula(text)):
        if form in known:
            return form
    label = unguard_formula(strip_name(text))
    if label in known:
        return label
    return next((name for name in known if label and strip_name(name) == label), label)


def spell_path(text: str) -> list[str]:
    """List what a field of a sheet may mean as a path, the exact text first.

    Examples
    --------
    >>> spell_path("'=1.png ")
    ["'=1.png ", "'=1.png", '=1.png ', '=1.png']
    """
    forms = [text, strip_name(text)]
    return [form for form in dict.fromkeys([*forms, *map(unguard_formula, forms)]) if form]


@dataclass(frozen=True)
class GivenLabel:
    """The label that a person gave to an image; ``place`` says where, such as ``row 3``."""

    image: str
    label: str
    place: str


def collect_labels(
    source: str, given: Iterable[GivenLabel], known: Iterable[str] = (), *, advice: str = ""
) -> dict[str, str]:
    """Return the label of every image; refuse contradictions and labels that are alike.

    Parameters
    ----------
    source
        Where the labels come from.
    given
        The labels.
    known
        Classes that exist already.
    advice
        A sentence for labels that are alike.

    Raises
    ------
    DataError
        If an image has two labels, a label has characters that cannot be shown, or it differs from
        a class or from another label only in case, white space or Unicode form.

    Examples
    --------
    >>> collect_labels("a.csv", [GivenLabel("1.png", "Cat", "row 2")], known=["cat"])
    Traceback (most recent call last):
    ...
    infoshot.core.errors.DataError: a.csv: the labels 'cat' and 'Cat' (row 2) differ only in case, \
spaces or Unicode form; did you mean 'cat'?
    """
    names = set(known)
    like = {_plain_form(name): GivenLabel("", name, "") for name in sorted(names)}
    first: dict[str, GivenLabel] = {}
    for new in given:
        check_class_name(new.label, f"{source} ({new.place})")
        before = first.setdefault(new.image, new)
        if before.label != new.label:
            raise DataError(
                f"{source}: '{new.image}' is labelled '{before.label}' and '{new.label}' "
                f"({before.place}, {new.place})."
            )
        if new.label in names:
            continue
        names.add(new.label)
        other = like.setdefault(_plain_form(new.label), new)
        if other.label != new.label:
            old_name, new_name = _quote_alike(other.label, new.label)
            place = f" ({other.place})" if other.place else ""
            raise DataError(
                f"{source}: the labels {old_name}{place} and {new_name} ({new.place}) differ only "
                f"in case, spaces or Unicode form; did you mean {old_name}?{advice}"
            )
    return {image: label.label for image, label in first.items()}


def _quote_alike(name: str, other: str) -> tuple[str, str]:
    """Quote two names that are alike; with escapes if they look the same."""
    if _visible_form(name) == _visible_form(other):
        return ascii(name), ascii(other)
    return f"'{name}'", f"'{other}'"


def _visible_form(name: str) -> str:
    """Return a name without what nobody sees: kinds of white space, format characters, NFD."""
    text = "".join(c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) != "Cf")
    return re.sub(r"\s", " ", text)


def _plain_form(name: str) -> str:
    """Return a name without case and white space too."""
    folded = unicodedata.normalize("NFD", _visible_form(name)).casefold()
    return re.sub(r"\s", "", unicodedata.normalize("NFC", folded))
