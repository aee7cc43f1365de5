"""The images of a training in memory: train classes to learn, validation classes to judge by."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.backbones import InputSpec
from infoshot.core.errors import DataError
from infoshot.images.datasets import ImageDataset, ImageSplit
from infoshot.images.in_memory import StoredImages, stored_crops, stored_images

# An image is stored with at most so many times the pixels of a crop's side. More would hardly be
# seen: crops are sampled from it pixel by pixel, and only the largest are scaled down at all.
_STORED_CROPS = 2


@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Everything a training looks at.

    ``about`` names the data set and holds the digests of its splits. ``val_crops`` are the
    published test crops, ``None`` where there are no classes to validate on.
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
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> TrainingImages:
    """Decode both splits once.

    Raises
    ------
    DataError
        If there is nothing to tell apart, or an image does not decode; the sentence names it.
    """
    n_classes = len(set(train.labels))
    if n_classes < 2:
        raise DataError(
            f"training needs images of at least 2 classes in the split 'train'; got {n_classes} "
            f"({', '.join(train.class_names)})."
        )
    about = {"dataset": dataset, "train_sha256": train.digest()}
    stored = stored_images(
        train.records, _STORED_CROPS * spec.crop, n_workers=n_workers, on_progress=on_progress
    )
    crops = labels = None
    if val is not None:
        about["val_sha256"] = val.digest()
        crops = stored_crops(
            val.records, spec.resize, spec.crop, n_workers=n_workers, on_progress=on_progress
        )
        labels = torch.tensor(val.labels)
    return TrainingImages(
        stored, torch.tensor(train.labels), tuple(train.class_names), crops, labels, about
    )


def base_splits(dataset: ImageDataset) -> tuple[ImageSplit, ImageSplit | None]:
    """Return the splits to train and to validate on; validation classes may be missing."""
    present = dataset.counts()
    if "train" not in present:
        raise DataError(
            f"{dataset.root}: there are no images of the split 'train' to learn from; "
            "class folders under train/, val/ and test/, or a JSON file given with --splits, "
            "say which classes those are."
        )
    return dataset.split("train"), dataset.split("val") if "val" in present else None
