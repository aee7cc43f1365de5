"""The decoded images of a training run: train classes, and validation classes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.backbones import InputSpec
from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.images.datasets import ImageDataset, ImageSplit
from infoshot.images.in_memory import StoredImages, load_crops, load_images

# Images are stored with at most this many times the side of a crop. More pixels matter only for
# small crops of large images.
_STORED_CROPS = 2


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """All images of a training run.

    ``about`` names the data set and holds the digests of its splits. ``val_crops`` are the
    published test crops; ``None`` without validation classes.

    Examples
    --------
    >>> from pathlib import Path
    >>> from infoshot.images import open_dataset
    >>> splits = base_splits(open_dataset("folder", Path("data")))
    >>> images = load_training_images("folder", *splits, InputSpec(), n_workers=1)
    >>> images.class_names, images.about["dataset"]
    (('a', 'b', 'c'), 'folder')
    """

    train: StoredImages
    train_labels: Tensor
    class_names: tuple[str, ...]
    val_crops: Tensor | None
    val_labels: Tensor | None
    about: dict[str, str]


def load_training_images(
    dataset: str,
    train: ImageSplit,
    val: ImageSplit | None,
    spec: InputSpec,
    *,
    n_workers: int,
    progress: Progress = SILENT,
) -> TrainingImages:
    """Decode both splits.

    Raises
    ------
    DataError
        If there are fewer than two classes, or an image cannot be decoded.

    Examples
    --------
    >>> from pathlib import Path
    >>> from infoshot.images import open_dataset
    >>> splits = base_splits(open_dataset("folder", Path("data")))
    >>> images = load_training_images("folder", *splits, InputSpec(), n_workers=1)
    >>> images.train_labels.shape, images.val_crops.shape
    (torch.Size([18]), torch.Size([12, 3, 84, 84]))
    """
    n_classes = len(set(train.labels))
    if n_classes < 2:
        raise DataError(
            f"training needs images of at least 2 classes in the split 'train'; got {n_classes} "
            f"({', '.join(train.class_names)})."
        )
    progress.start("decoding", len(train.records) + (len(val.records) if val else 0), "images")
    about = {"dataset": dataset, "train_sha256": train.digest()}
    stored = load_images(
        train.records,
        _STORED_CROPS * spec.crop,
        n_workers=n_workers,
        on_progress=progress.advance,
    )
    crops = labels = None
    if val is not None:
        about["val_sha256"] = val.digest()
        crops = load_crops(
            val.records, spec.resize, spec.crop, n_workers=n_workers, on_progress=progress.advance
        )
        labels = torch.tensor(val.labels)
    return TrainingImages(
        stored, torch.tensor(train.labels), tuple(train.class_names), crops, labels, about
    )


def base_splits(dataset: ImageDataset) -> tuple[ImageSplit, ImageSplit | None]:
    """Return the split to train on, and the one to validate on or ``None``.

    Raises
    ------
    DataError
        If there is no image to train on.

    Examples
    --------
    >>> from pathlib import Path
    >>> from infoshot.images import open_dataset
    >>> train, val = base_splits(open_dataset("folder", Path("data")))
    >>> train.class_names, val.class_names
    (['a', 'b', 'c'], ['d', 'e'])
    """
    present = dataset.counts()
    if "train" not in present:
        raise DataError(
            f"{dataset.root}: has no images of the split 'train'. Put class folders under train/, "
            "val/ and test/, or pass splits=FILE, a JSON file that lists the classes of each split."
        )
    return dataset.split("train"), dataset.split("val") if "val" in present else None
