"""What a data set on disk holds, what it lacks, and which images cannot be decoded."""

import os
from dataclasses import dataclass
from pathlib import Path

from infoshot.core.progress import ProgressLike, open_progress
from infoshot.core.text import escape_name, visible
from infoshot.images.broken import find_broken_images
from infoshot.images.datasets import open_dataset
from infoshot.images.splits import SPLITS


@dataclass(frozen=True)
class SplitCount:
    """Classes and images of a split, and the published numbers (0 if there are none)."""

    split: str
    classes: int
    images: int
    published_classes: int
    published_images: int


@dataclass(frozen=True)
class Inspection:
    """The content of a data set on disk.

    Attributes
    ----------
    layout
        The layout in which the images were found.
    splits
        Classes and images of each split.
    missing_classes
        Classes of the published data set that are not on disk.
    unknown_classes
        Classes on disk that belong to no split.
    ignored
        Files that are not images according to their names.
    broken
        Images that cannot be decoded, each with the reason.
    """

    layout: str
    splits: list[SplitCount]
    missing_classes: list[str]
    unknown_classes: list[str]
    ignored: list[str]
    broken: list[str]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing or broken."""
        counts = all(
            (count.classes, count.images) == (count.published_classes, count.published_images)
            for count in self.splits
            if count.published_classes
        )
        return counts and not self.missing_classes and not self.broken


def inspect_dataset(
    dataset: str,
    root: str | os.PathLike[str],
    *,
    splits: str | os.PathLike[str] | None = None,
    decode: bool = True,
    progress: ProgressLike = None,
) -> Inspection:
    """Count the classes and images of a data set, and try to decode every image.

    Parameters
    ----------
    dataset
        ``"mini-imagenet"``, ``"tiered-imagenet"``, ``"cub"`` or ``"folder"``.
    root
        Class folders, a folder with CSV lists, tar archives or pickles.
    splits
        JSON file with the classes of each split; ``None``: see
        :func:`infoshot.images.open_dataset`.
    decode
        Try to decode every image; if false, ``broken`` is empty.
    progress
        See :mod:`infoshot.core.progress`.

    Returns
    -------
    The counts beside the published ones, and what is missing, unknown, ignored and broken.

    Raises
    ------
    InvalidArgumentError
        If the name of the data set is unknown.
    DataError
        If there are no images, or a list or archive cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root:
    ...     (Path(root) / "cats").mkdir()
    ...     Image.new("RGB", (8, 8)).save(Path(root) / "cats" / "tom.png")
    ...     found = inspect_dataset("folder", root)
    >>> found.layout, found.splits[0].images, found.complete
    ('class folders', 1, True)
    """
    opened = open_dataset(dataset, Path(root), None if splits is None else Path(splits))
    broken: dict[int, str] = {}
    if decode:
        with open_progress(progress) as bar:
            records = opened.found.records
            bar.start("decoding", len(records), "images")
            broken = find_broken_images(records, bar)
    counts, published = opened.counts(), opened.spec.published
    split_counts = [
        SplitCount(
            split,
            len(counts.get(split, {})),
            sum(counts.get(split, {}).values()),
            *published.get(split, (0, 0)),
        )
        for split in SPLITS
        if split in counts or split in published
    ]
    return Inspection(
        layout=opened.found.layout,
        splits=split_counts,
        missing_classes=opened.missing_classes(),
        unknown_classes=sorted(counts.get("", {})),
        ignored=[escape_name(name) for name in opened.found.ignored],
        broken=[visible(sentence) for sentence in broken.values()],
    )
