"""The data sets by name: their layouts, and how their classes are split.

>>> sorted(DATASETS)
['cub', 'folder', 'mini-imagenet', 'tiered-imagenet']
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from infoshot.core.checks import unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.text import check_class_name
from infoshot.images.decoding import ImageRecord
from infoshot.images.layouts.class_folders import find_class_folders
from infoshot.images.layouts.cub import find_cub
from infoshot.images.layouts.found_images import FoundImages
from infoshot.images.layouts.lists import find_lists
from infoshot.images.layouts.pickles import find_mini_pickles, find_tiered_pickles
from infoshot.images.layouts.tars import find_tars
from infoshot.images.splits import SPLITS, cub_split, published_split, read_split_file

Layout = Callable[[Path], FoundImages | None]
_LISTED = ("mini-imagenet", "tiered-imagenet")  # data sets with published lists of classes
_NUMBERED = re.compile(r"\d{3}\.")  # class names of CUB start with their number


@dataclass(frozen=True)
class DatasetSpec:
    """The layouts and the published content of a data set.

    ``split`` maps class names to splits; ``None`` if only the layout or a split file defines them.
    ``published`` has the numbers of classes and images of each split.
    """

    name: str
    layouts: tuple[Layout, ...]
    split: Callable[[Iterable[str]], Mapping[str, str]] | None
    published: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The images of one split, ordered by class; labels number the classes from 0.

    Examples
    --------
    >>> from infoshot.images import open_dataset
    >>> split = open_dataset("folder", Path("data")).split("train")
    >>> len(split.records), split.class_names
    (18, ['a', 'b', 'c'])
    """

    name: str
    records: list[ImageRecord]
    labels: list[int]
    class_names: list[str]

    def digest(self) -> str:
        """Return the SHA-256 of classes and image contents, on which features depend."""
        total = hashlib.sha256()
        for record in self.records:
            content = hashlib.sha256(record.location.content()).hexdigest()
            total.update(f"{record.class_name}\0{content}\n".encode())
        return total.hexdigest()

    def without(self, numbers: Container[int]) -> "ImageSplit":
        """Return the split without the images of these numbers and without empty classes."""
        kept = [record for number, record in enumerate(self.records) if number not in numbers]
        return _split(self.name, kept)


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """The images found under a root, with the split of each class.

    Examples
    --------
    >>> from infoshot.images import open_dataset
    >>> dataset = open_dataset("folder", Path("data"))
    >>> dataset.split("val").class_names
    ['d', 'e']
    """

    spec: DatasetSpec
    root: Path
    found: FoundImages
    split_of_class: Mapping[str, str]

    def split(self, name: str) -> ImageSplit:
        """Images of one split.

        Raises
        ------
        InvalidArgumentError
            If there is no split of that name.
        DataError
            If the split has no images.
        """
        if name not in SPLITS:
            raise InvalidArgumentError(unknown_name("split", name, SPLITS))
        records = [
            record
            for record in self.found.records
            if self.split_of_class.get(record.class_name) == name
        ]
        if not records:
            raise DataError(f"{self.root}: there are no images of the split '{name}'.")
        return _split(name, records)

    def counts(self) -> dict[str, Counter[str]]:
        """Images per class for every split; the key '' has the classes that belong to no split."""
        counts: dict[str, Counter[str]] = {}
        for record in self.found.records:
            split = self.split_of_class.get(record.class_name, "")
            counts.setdefault(split, Counter())[record.class_name] += 1
        return counts

    def missing_classes(self) -> list[str]:
        """Published classes that are not on disk; empty if the layout has other class names."""
        here = {record.class_name for record in self.found.records}
        known = set(self.spec.split(here) if self.spec.split else self.split_of_class)
        return sorted(known - here) if known & here else []


def _split(name: str, records: list[ImageRecord]) -> ImageSplit:
    """Sort images by class and name, and number the classes."""
    records = sorted(records, key=lambda record: (record.class_name, record.key))
    class_names = sorted({record.class_name for record in records})
    number = {class_name: k for k, class_name in enumerate(class_names)}
    return ImageSplit(name, records, [number[record.class_name] for record in records], class_names)


def _listed(name: str, _: Iterable[str]) -> Mapping[str, str]:
    return published_split(name)


_ALL = (
    DatasetSpec(
        "mini-imagenet",
        (find_mini_pickles, find_lists, find_tars, find_class_folders),
        partial(_listed, "mini-imagenet"),
        {"train": (64, 38_400), "val": (16, 9_600), "test": (20, 12_000)},
    ),
    DatasetSpec(
        "tiered-imagenet",
        (find_tiered_pickles, find_lists, find_tars, find_class_folders),
        partial(_listed, "tiered-imagenet"),
        {"train": (351, 448_695), "val": (97, 124_261), "test": (160, 206_209)},
    ),
    DatasetSpec(
        "cub",
        (find_cub, find_lists, find_tars, find_class_folders),
        cub_split,
        {"train": (100, 5_885), "val": (50, 2_950), "test": (50, 2_953)},
    ),
    DatasetSpec("folder", (find_lists, find_tars, find_class_folders), None),
)
DATASETS: Mapping[str, DatasetSpec] = {spec.name: spec for spec in _ALL}
"""The data sets by name.

Examples
--------
>>> from infoshot.images import DATASETS
>>> DATASETS["mini-imagenet"].published["test"]  # classes and images
(20, 12000)
"""


def open_dataset(name: str, root: Path, split_file: Path | None = None) -> ImageDataset:
    """Find the images of a data set under ``root``, in any of its layouts.

    Parameters
    ----------
    name
        One of ``DATASETS``.
    root
        Class folders, a flat folder with CSV lists, tar archives, or pickles.
    split_file
        JSON with the classes of each split. ``None``: the published lists; for ``folder``, the
        splits of the layout, or all classes as ``test``.

    Raises
    ------
    InvalidArgumentError, DataError
        If the name is unknown, or there are no images.

    Examples
    --------
    >>> dataset = open_dataset("folder", Path("data"))
    >>> {split: len(classes) for split, classes in dataset.counts().items()}
    {'train': 3, 'val': 2}
    """
    if name not in DATASETS:
        raise InvalidArgumentError(unknown_name("dataset", name, DATASETS))
    spec = DATASETS[name]
    found = _find(root, spec.layouts, name)
    return ImageDataset(spec, root, found, _splits(spec, found, split_file))


def _find(root: Path, layouts: Iterable[Layout], name: str) -> FoundImages:
    """Find images in the first layout that has some."""
    if not root.is_dir():
        raise DataError(
            f"{root}: {'a file, not a' if root.exists() else 'there is no such'} folder."
        )
    for layout in layouts:
        found = layout(root)
        if found is not None and found.records:
            break
    else:
        raise DataError(
            f"{root}: no images found; {name} may be class folders, a folder of images with "
            "train/val/test.csv, tar archives of class folders, or the distributed pickles."
        )
    for class_name in {record.class_name for record in found.records}:
        check_class_name(class_name, root)
    return found


def recognise_dataset(root: Path) -> str:
    """Return the published data set that has the class names under ``root``; empty if none has.

    Raises
    ------
    DataError
        If there are no images.
    """
    layouts = dict.fromkeys(layout for spec in _ALL for layout in spec.layouts)
    names = {record.class_name for record in _find(root, layouts, "a data set").records}
    shared = {name: len(names & published_split(name).keys()) for name in _LISTED}
    best = max(_LISTED, key=shared.__getitem__)
    if shared[best]:
        return best
    return "cub" if any(_NUMBERED.match(name) for name in names) else ""


def _splits(spec: DatasetSpec, found: FoundImages, split_file: Path | None) -> Mapping[str, str]:
    """Split of each class: from the split file, else from class names, else from the layout."""
    class_names = {record.class_name for record in found.records}
    if split_file is not None:
        return read_split_file(split_file)
    if spec.split is None:
        return found.split_of_class or dict.fromkeys(class_names, "test")
    by_name = spec.split(class_names)
    # Pickles of tiered-imagenet have other class names, so that only the layout has the split.
    return {name: by_name.get(name, found.split_of_class.get(name, "")) for name in class_names}
