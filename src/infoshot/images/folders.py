"""Which images there are: examples by class, and the pile to be labelled.

Examples are a folder per class, or a CSV file with the columns ``path`` and ``label``. The pile is
any tree of images, a CSV file with a column ``path``, or a text file with a path per line. Links to
folders are followed, each folder once; hidden files are left out.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infoshot.core.csv_file import read_csv
from infoshot.core.errors import DataError
from infoshot.images.decoding import EXTENSIONS

# Images that Pillow cannot read: they are listed with that reason instead of being passed over.
_FOREIGN = frozenset(
    ".heic .heif .avif .jxl .jp2 .cr2 .cr3 .nef .arw .dng .raf .orf .rw2 .psd .svg".split()  # noqa: SIM905
)
_LARGEST_FILE = 2**30


@dataclass(frozen=True)
class Found:
    """An image file; ``path`` is how it is called in results, ``file`` where it is."""

    path: str
    file: Path

    def trouble(self) -> str:
        """Why it must not even be opened; empty if it may."""
        try:
            facts = self.file.stat()
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        if not stat.S_ISREG(facts.st_mode):
            return "not a regular file"
        if facts.st_size > _LARGEST_FILE:
            return f"too large to be a photo ({facts.st_size / 2**30:.1f} GB)"
        return ""


def find_examples(given: Path) -> list[tuple[str, Found]]:
    """Labels and images, class after class.

    Raises
    ------
    DataError
        If there are fewer than two classes, or one without images.
    """
    if given.is_dir():
        found = _by_class_folder(given)
    elif given.is_file():
        found = [(label, image) for image, label in read_labels(given, all_lines=True)]
    else:
        raise DataError(f"{given}: there is no such folder or file with examples.")
    names = {label for label, _ in found}
    if len(names) < 2:
        raise DataError(
            f"{given}: examples of at least two classes are needed, a folder for each; "
            f"got {_listed(sorted(names)) or 'none'}."
        )
    return sorted(found, key=lambda pair: pair[0])


def find_photos(given: Path, without: Sequence[Path] = ()) -> list[Found]:
    """The pile, sorted by path; files and folders in ``without`` are passed over.

    Raises
    ------
    DataError
        If there is nothing.
    """
    left_out = {os.path.realpath(path) for path in without}
    if given.is_dir():
        photos = [
            photo
            for photo in _walk(given, left_out)
            if os.path.realpath(photo.file) not in left_out
        ]
    elif given.is_file():
        photos = list(dict.fromkeys(photo for photo, _ in _listed_files(given)))
    else:
        raise DataError(f"{given}: there is no such folder or file with photos.")
    if not photos:
        raise DataError(f"{given}: there are no images in it.")
    return photos


def read_labels(given: Path, *, all_lines: bool = False) -> list[tuple[Found, str]]:
    """Images and labels of a CSV file with the columns ``path`` and ``label``.

    Lines without a label are passed over, unless ``all_lines`` must have one.

    Raises
    ------
    DataError
        If there is no label, or an image has two.
    """
    if not given.is_file():
        raise DataError(f"{given}: there is no such file.")
    listed = _listed_files(given)
    rows = [(image, label) for image, label in listed if label]
    if not rows:
        raise DataError(f"{given}: no line has a label; the columns are path,label.")
    if all_lines and len(rows) < len(listed):
        nameless = next(image.path for image, label in listed if not label)
        raise DataError(f"{given}: '{nameless}' has no label.")
    label_of: dict[str, str] = {}
    for image, label in rows:
        other = label_of.setdefault(image.path, label)
        if other != label:
            raise DataError(f"{given}: '{image.path}' is labelled '{other}' and '{label}'.")
    return rows


def printable(path: str | os.PathLike[str]) -> str:
    r"""A path as text that any file can hold; bytes that are no text become ``\xff``.

    Examples
    --------
    >>> printable(os.fsdecode(b"photo\xe9.jpg"))
    'photo\\xe9.jpg'
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _by_class_folder(root: Path) -> list[tuple[str, Found]]:
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
            raise DataError(f"{folder}: the class '{printable(folder.name)}' has no examples.")
        found += [(printable(folder.name), image) for image in images]
    return found


def _walk(root: Path, left_out: set[str]) -> Iterator[Found]:
    """Images under a folder; every real folder once, so that links in a circle do no harm."""
    seen = set()

    def visit(folder: Path) -> Iterator[Found]:
        try:
            facts, entries = folder.stat(), sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            yield Found(printable(folder), folder)  # its trouble says why
            return
        if (facts.st_dev, facts.st_ino) in seen or os.path.realpath(folder) in left_out:
            return
        seen.add((facts.st_dev, facts.st_ino))
        for entry in entries:
            path = folder / entry.name
            if entry.name.startswith("."):
                continue
            if _is_dir(entry):
                yield from visit(path)
            elif Path(entry.name).suffix.lower() in EXTENSIONS | _FOREIGN:
                yield Found(printable(path), path)

    yield from visit(root)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in a circle
        return False


def _listed_files(given: Path) -> list[tuple[Found, str]]:
    """Paths, and labels where there are any, of a CSV or text file.

    Paths that are not absolute count from the folder of the list, or else from where we are.
    """
    if given.suffix.lower() == ".csv":
        lines = [(row["path"], row.get("label", "")) for row in read_csv(given, "path")]
    else:
        try:
            text = os.fsdecode(given.read_bytes())
        except OSError as error:
            raise DataError(f"{given}: cannot be read ({error.strerror}).") from error
        if "\0" in text:
            raise DataError(f"{given}: neither a folder nor a list of files (.csv or text).")
        lines = [(line.removesuffix("\r"), "") for line in text.split("\n")]
    return [(_located(path, given.parent), label) for path, label in lines if path.strip()]


def _located(path: str, folder: Path) -> Found:
    beside = folder / path
    return Found(printable(path), beside if beside.exists() else Path(path))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
