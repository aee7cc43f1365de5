"""The data sets by name: which layouts they circulate in, and how their classes are split.

>>> sorted(DATASETS)
['cub', 'folder', 'mini-imagenet', 'tiered-imagenet']
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from infoshot.core.checks import unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.images.decoding import ImageRecord
from infoshot.images.layouts.class_folders import find_class_folders
from infoshot.images.layouts.cub import find_cub
from infoshot.images.layouts.found import Found
from infoshot.images.layouts.lists import find_lists
from infoshot.images.layouts.pickles import find_mini_pickles, find_tiered_pickles
from infoshot.images.layouts.tars import find_tars
from infoshot.images.splits import SPLITS, cub_split, published_split, read_split_file

Layout = Callable[[Path], Found | None]


@dataclass(frozen=True)
class DatasetSpec:
    """How a data set circulates and what it should hold.

    ``split`` gives the split of every class from the class names; ``None`` where only the layout or
    a split file can say it. ``published`` has classes and images per split.
    """

    name: str
    layouts: tuple[Layout, ...]
    split: Callable[[Iterable[str]], Mapping[str, str]] | None
    published: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """The images of one split, class after class; labels number the classes from 0."""

    name: str
    records: list[ImageRecord]
    labels: list[int]
    class_names: list[str]

    def digest(self) -> str:
        """Return the sha256 over classes and image contents: what features depend on."""
        total = hashlib.sha256()
        for record in self.records:
            content = hashlib.sha256(record.location.content()).hexdigest()
            total.update(f"{record.class_name}\0{content}\n".encode())
        return total.hexdigest()

    def without(self, numbers: Container[int]) -> "ImageSplit":
        """Return the split without the images of these numbers, and without classes left empty."""
        kept = [record for number, record in enumerate(self.records) if number not in numbers]
        return _split(self.name, kept)


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """What was found under a root, sorted into splits."""

    spec: DatasetSpec
    root: Path
    found: Found
    split_of_class: Mapping[str, str]

    def split(self, name: str) -> ImageSplit:
        """Images of one split.

        Raises
        ------
        InvalidArgumentError
            If there is no split of that name.
        DataError
            If the split holds no image here.
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
        """Images per class, for every split that occurs; '' holds classes of no split."""
        counts: dict[str, Counter[str]] = {}
        for record in self.found.records:
            split = self.split_of_class.get(record.class_name, "")
            counts.setdefault(split, Counter())[record.class_name] += 1
        return counts

    def missing_classes(self) -> list[str]:
        """Classes that belong to the data set but are not here, where names can tell."""
        here = {record.class_name for record in self.found.records}
        known = set(self.spec.split(here) if self.spec.split else self.split_of_class)
        return sorted(known - here) if known & here else []


def _split(name: str, records: list[ImageRecord]) -> ImageSplit:
    """Images in their order, class after class, and the classes numbered."""
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


def open_dataset(name: str, root: Path, split_file: Path | None = None) -> ImageDataset:
    """Find the images of a data set under ``root``, in whichever layout they are there.

    Parameters
    ----------
    name
        One of ``DATASETS``.
    root
        What is on disk: class folders, a flat folder with CSV lists, tar archives, pickles.
    split_file
        JSON with the classes of each split; by default the published lists, or for ``folder`` what
        the layout says, or all classes as ``test``.

    Raises
    ------
    InvalidArgumentError, DataError
        If the name is unknown, or nothing usable is there.
    """
    if name not in DATASETS:
        raise InvalidArgumentError(unknown_name("dataset", name, DATASETS))
    spec = DATASETS[name]
    if not root.is_dir():
        raise DataError(
            f"{root}: {'a file, not a' if root.exists() else 'there is no such'} folder."
        )
    for layout in spec.layouts:
        found = layout(root)
        if found is not None and found.records:
            break
    else:
        raise DataError(
            f"{root}: no images found; {name} may be class folders, a folder of images with "
            "train/val/test.csv, tar archives of class folders, or the pickles in circulation."
        )
    return ImageDataset(spec, root, found, _splits(spec, found, split_file))


def _splits(spec: DatasetSpec, found: Found, split_file: Path | None) -> Mapping[str, str]:
    """What was asked for goes before what the layout says, and that before the class names."""
    class_names = {record.class_name for record in found.records}
    if split_file is not None:
        return read_split_file(split_file)
    if spec.split is None:
        return found.split_of_class or dict.fromkeys(class_names, "test")
    by_name = spec.split(class_names)
    # Pickles of tiered-imagenet name classes in words, so that only the file says the split.
    return {name: by_name.get(name, found.split_of_class.get(name, "")) for name in class_names}
