"""Find the images under a path: labelled examples, and unlabelled images.

Examples are a folder per class, or a CSV file with the columns ``path`` and ``label``. Unlabelled
images are any folder tree, a CSV file with a column ``path``, or a text file with a path per line.
Links to folders are followed, each folder once. Hidden files are ignored.
"""

import difflib
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infoshot.core.csv_file import read_csv, read_names
from infoshot.core.errors import DataError
from infoshot.core.label_names import (
    NONE,
    GivenLabel,
    collect_labels,
    read_label,
    spell_path,
    strip_name,
)
from infoshot.core.spreadsheet import unguard_formula
from infoshot.core.text import check_class_name, escape_name, unescape_name
from infoshot.images.decoding import EXTENSIONS, FileLocation

# Images that Pillow cannot decode: they are reported as unreadable instead of being ignored.
_UNSUPPORTED = frozenset(
    ".heic .heif .avif .jxl .jp2 .cr2 .cr3 .nef .arw .dng .raf .orf .rw2 .psd .svg".split()  # noqa: SIM905
)
_MOST_NAMED, _MOST_CLASSES = 20, 5


@dataclass(frozen=True)
class ImageFile:
    """An image file: ``path`` is its name in results, ``file`` is where it is."""

    path: str
    file: Path

    @property
    def location(self) -> FileLocation:
        """Where to read it."""
        return FileLocation(self.file)


def find_examples(given: Path, known: Sequence[str] | None = None) -> list[tuple[str, ImageFile]]:
    """Find labelled images, sorted by class.

    Parameters
    ----------
    given
        A folder with one folder per class, or a CSV file.
    known
        The classes, if they are given by name. Some of them may have no examples.

    Raises
    ------
    DataError
        If there are fewer than two classes, a class has no images, or it is not among those that
        are ``known``.
    """
    if given.is_dir():
        found = _by_class_folder(given)
    elif given.is_file():
        found = _by_list(given)
    else:
        raise DataError(f"{given}: this folder or file with examples does not exist.")
    names = {label for label, _ in found}
    for name in names:
        check_class_name(name, given)
        if name == NONE:
            raise DataError(f"{given}: '{NONE}' means 'none of the classes'; rename this class.")
    if known is not None:
        _check_known(given, names, known)
    elif len(names) < 2:
        raise DataError(
            f"{given}: examples of at least two classes are needed, one folder per class; "
            f"got {_quote(sorted(names)) or 'none'}.{_hint_at_classes(given)}"
        )
    return sorted(found, key=lambda pair: pair[0])


def _check_known(given: Path, names: Collection[str], known: Sequence[str]) -> None:
    """Raise ``DataError`` if a class with examples is not among those that are given by name."""
    unknown = sorted(set(names) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f" (is it '{near[0]}'?)" if near else ""
        raise DataError(
            f"{given}: '{unknown[0]}' has examples, but is not in classes{hint}; add it there, or "
            "rename it here."
        )


def find_images(given: Path, without: Sequence[Path] = ()) -> list[ImageFile]:
    """Find unlabelled images, sorted by path; files and folders in ``without`` are skipped.

    Raises
    ------
    DataError
        If there are no images.
    """
    excluded = {os.path.realpath(path) for path in without}
    if given.is_dir():
        images = [
            image
            for image in _walk(given, excluded)
            if os.path.realpath(image.file) not in excluded
        ]
    elif given.is_file():
        images = list(dict.fromkeys(_read_list(given)))
    else:
        raise DataError(f"{given}: this folder or file with images does not exist.")
    if not images and given.is_dir() and any(_walk(given, set())):
        raise DataError(
            f"{given}: all of its images are examples or results; put the images to label into "
            "another folder."
        )
    if not images:
        raise DataError(f"{given}: it contains no images.")
    return images


def refuse_unusable(images: Sequence[ImageFile], reasons: Sequence[str]) -> None:
    """Raise ``DataError`` with all examples that have a reason why they cannot be used."""
    unusable = [
        (image.path, reason) for image, reason in zip(images, reasons, strict=True) if reason
    ]
    if len(unusable) == 1:
        ((path, reason),) = unusable
        clause = reason if reason.startswith("cannot") else f"cannot be used ({reason})"
        raise DataError(f"{path}: this example {clause}; replace or remove it.")
    if unusable:
        named = ", ".join(f"{path} ({reason})" for path, reason in unusable[:_MOST_NAMED])
        more = len(unusable) - _MOST_NAMED
        rest = f" and {more:,} more" if more > 0 else ""
        raise DataError(
            f"{len(unusable):,} examples cannot be used; replace or remove them: {named}{rest}."
        )


def warn_class_folders(classes: Sequence[str], photos: Sequence[Path]) -> list[str]:
    """Say that photos in folders with the names of classes are not examples."""
    folders = [escape_name(photo.parent.name) for photo in photos]
    named = sorted(set(folders) & set(classes))
    if not named:
        return []
    n = sum(folder in named for folder in folders)
    more = f" and {len(named) - _MOST_CLASSES} more" if len(named) > _MOST_CLASSES else ""
    are = "photo is" if n == 1 else "photos are"
    return [
        f"{n:,} {are} in folders with the names of classes ({', '.join(named[:_MOST_CLASSES])}"
        f"{more}). Folders of photos are not read as labels; to use these photos as examples, move "
        "them into the folder of examples."
    ]


def read_labels(
    given: Path, *, all_lines: bool = False, known: Collection[str] = (), csv_safe: bool = False
) -> list[tuple[ImageFile, str, str]]:
    """Read images and labels from a CSV file with the columns ``path`` and ``label``.

    Parameters
    ----------
    given
        The file. White space around labels is removed.
    all_lines
        Whether lines without a label are refused; otherwise they are skipped.
    known
        Classes that exist already.
    csv_safe
        Whether paths that look like formulas have an apostrophe before them.

    Returns
    -------
    Images, labels, and the rows of the sheet that they are from.

    Raises
    ------
    DataError
        If no line has a label.
    """
    if not given.is_file():
        raise DataError(f"{given}: there is no such file.")
    is_csv = given.suffix.lower() == ".csv"
    spell = unguard_formula if csv_safe else str
    listed = [
        (
            locate_image(spell(row["path"]), given.parent),
            read_label(row.get("label", ""), known),
            f"row {n}",
        )
        for n, row in enumerate(read_csv(given, "path") if is_csv else (), 2)  # as spreadsheets do
        if strip_name(row["path"])
    ]
    rows = [row for row in listed if row[1]]
    if not rows:
        raise DataError(f"{given}: no line has a label; the columns must be path,label.")
    if all_lines and len(rows) < len(listed):
        unlabelled = next(image.path for image, label, _ in listed if not label)
        raise DataError(f"{given}: '{unlabelled}' has no label.")
    return rows


def locate_image(text: str, folder: Path = Path(), *, escaped: bool = True) -> ImageFile:
    r"""Find the image file that a person or an earlier run names.

    Parameters
    ----------
    text
        Path of the image, as labels.csv has it or as the file system has it. The one that exists
        is taken; ``escaped`` decides if both exist or none.
    folder
        Where a relative path starts; if there is no such file, it starts in the current folder.
    escaped
        Whether ``\xNN`` in the text is rather a byte of the name, as :func:`escape_name` writes it.
    """
    names: list[str] = []
    for form in spell_path(text) or [text]:
        names += [unescape_name(form), form] if escaped else [form, unescape_name(form)]
    for name in dict.fromkeys(names):
        for file in (folder / name, Path(name)):
            if os.path.exists(file):  # noqa: PTH110 - Path raises if the name is too long
                return ImageFile(escape_name(name), file)
    return ImageFile(escape_name(names[0]), Path(names[0]))


def _by_class_folder(root: Path) -> list[tuple[str, ImageFile]]:
    found = []
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError as error:
        raise DataError(f"{root}: cannot be read ({error.strerror}).") from error
    for folder in folders:
        if folder.name.startswith("."):
            continue
        images = list(_walk(folder, set()))
        if not images:
            raise DataError(f"{folder}: the class '{escape_name(folder.name)}' has no examples.")
        found += [(escape_name(folder.name), image) for image in images]
    return found


def _hint_at_classes(given: Path) -> str:
    """Return a sentence if the folders of classes are one level below the folder that was given."""
    below = Counter(path.parent for path in given.glob("*/*") if path.is_dir())
    for folder, n in below.most_common(1):
        if n > 1:
            return f" If the folders in {escape_name(folder)} are the classes, pass that folder."
    return ""


def _by_list(given: Path) -> list[tuple[str, ImageFile]]:
    """Read a list of examples, in which an image has one label and no two labels are alike."""
    rows = read_labels(given, all_lines=True)
    given_labels = (GivenLabel(str(i.file.resolve()), label, row) for i, label, row in rows)
    advice = " If they are two classes, make one folder of examples for each."
    collect_labels(str(given), given_labels, advice=advice)
    return [(label, image) for image, label, _ in rows]


def _walk(root: Path, excluded: set[str]) -> Iterator[ImageFile]:
    """Yield the images under a folder; visit every real folder once, so that link loops end."""
    seen = set()

    def visit(folder: Path) -> Iterator[ImageFile]:
        try:
            facts, entries = folder.stat(), sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            yield ImageFile(escape_name(folder), folder)  # reported as unreadable
            return
        if (facts.st_dev, facts.st_ino) in seen or os.path.realpath(folder) in excluded:
            return
        seen.add((facts.st_dev, facts.st_ino))
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if _is_dir(entry):
                yield from visit(path)
            elif Path(entry.name).suffix.lower() in EXTENSIONS | _UNSUPPORTED:
                yield ImageFile(escape_name(path), path)

    yield from visit(root)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link loop
        return False


def _read_list(given: Path) -> list[ImageFile]:
    """Read the paths of images from a CSV or text file.

    A relative path is relative to the folder of the list if it exists there, else to the current
    folder.
    """
    if given.suffix.lower() == ".csv":
        listed = [(row["path"], True) for row in read_csv(given, "path")]
    else:
        listed = [(path, False) for path in read_names(given)]
    return [
        locate_image(path, given.parent, escaped=escaped)
        for path, escaped in listed
        if path.strip()
    ]


def _quote(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
