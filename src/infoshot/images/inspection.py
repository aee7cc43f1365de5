"""What is there, what is missing against the published counts, and what does not decode."""

from collections.abc import Callable
from dataclasses import dataclass

from infoshot.images.datasets import ImageDataset
from infoshot.images.in_memory import broken_images
from infoshot.images.splits import SPLITS


@dataclass(frozen=True)
class SplitCount:
    """Classes and images of a split, beside what was published (0 where nothing was)."""

    split: str
    classes: int
    images: int
    published_classes: int
    published_images: int


@dataclass(frozen=True)
class Inspection:
    """Everything to know before training on a data set."""

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
    dataset: ImageDataset,
    *,
    decode: bool = True,
    n_workers: int = 2,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> Inspection:
    """Count everything and, unless told not to, decode every image.

    Parameters
    ----------
    dataset
        What was found.
    decode
        Try to decode every image; without it ``broken`` is empty.
    n_workers
        How many decode at a time.
    on_progress
        Called with the number of images tried since the last call.
    """
    counts = dataset.counts()
    published = dataset.spec.published
    splits = [
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
        layout=dataset.found.layout,
        splits=splits,
        missing_classes=dataset.missing_classes(),
        unknown_classes=sorted(counts.get("", {})),
        ignored=dataset.found.ignored,
        broken=_broken(dataset, n_workers, on_progress) if decode else [],
    )


def _broken(dataset: ImageDataset, n_workers: int, on_progress: Callable[[int], None]) -> list[str]:
    broken = broken_images(dataset.found.records, n_workers=n_workers, on_progress=on_progress)
    return list(broken.values())
