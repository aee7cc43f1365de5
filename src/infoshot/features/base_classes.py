"""The base classes, on which a network was trained: their images, mean feature and scatter.

The base classes are the train classes of the data set that the checkpoint records, whatever data
set the features are of. A network without a record counts as trained on the train classes of the
data set at hand.
"""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from infoshot.backbones import Encoder
from infoshot.core.checks import unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.types import FeatureTable
from infoshot.images import DATASETS, ImageDataset, ImageSplit, open_dataset

RANK = 128  # directions of the scatter that are kept; 256 and all of them gain less than 0.2 points
_ANY_CLASSES = "folder"  # the data set of any classes


class BaseImages(NamedTuple):
    """The images of the base classes and the data set they belong to."""

    dataset: str
    split: ImageSplit


def record_training_set(encoder: Encoder, dataset: str) -> Encoder:
    """Return a network with a record of the data set it was trained on.

    Raises
    ------
    InvalidArgumentError
        If the data set is unknown, or the network records another one.
    """
    if dataset not in DATASETS:
        raise InvalidArgumentError(unknown_name("base_dataset", dataset, DATASETS))
    if encoder.trained_on not in ("", _ANY_CLASSES, dataset):
        raise InvalidArgumentError(
            f"the checkpoint records that the network was trained on {encoder.trained_on}, not on "
            f"{dataset}."
        )
    return dataclasses.replace(encoder, config={**encoder.config, "dataset": dataset})


def find_base_images(
    encoder: Encoder,
    images: ImageDataset,
    base_root: Path | None = None,
    split_file: Path | None = None,
) -> BaseImages:
    """Find the images of the base classes.

    Parameters
    ----------
    encoder
        The network.
    images
        The images whose features are extracted. They contain the base classes if the network was
        trained on the same data set.
    base_root
        Where the images of the base classes are otherwise.
    split_file
        The split file of ``images``, which holds under ``base_root`` too if it is the same data
        set.

    Raises
    ------
    DataError
        If the images of the base classes are not there.
    InvalidArgumentError
        If ``base_root`` is given and the data set under it is not known.
    """
    own = images.spec.name
    dataset = encoder.trained_on or own
    if base_root is not None:
        if not encoder.trained_on:
            raise InvalidArgumentError(
                "base_dataset must be given together with base_root=DIR: the network does not "
                "record the data set it was trained on."
            )
        images = open_dataset(dataset, base_root, split_file if dataset == own else None)
    elif dataset != own:
        raise DataError(
            f"the network was trained on {dataset} and the images are of {own}; for the mean of "
            f"the base classes, pass base_root=DIR with the images of {dataset}."
        )
    try:
        split = images.split("train")
    except DataError as error:
        raise DataError(
            f"{images.root}: there are no images of the split 'train', the base classes; pass "
            "base_root=DIR with the images that the network was trained on."
        ) from error
    _check_classes(encoder, dataset, split)
    return BaseImages(dataset, split)


def add_base_statistics(table: FeatureTable, base: FeatureTable) -> FeatureTable:
    """Return a table with the mean and the scatter of the base classes, and their provenance."""
    about = {
        "base_dataset": base.provenance["dataset"],
        "base_sha256": base.provenance["split_sha256"],
    }
    scatter = measure_scatter(base.features, base.labels)
    return dataclasses.replace(
        table,
        base_mean=base.features.mean(0),
        base_scatter=None if scatter is None else scatter.to(table.features.dtype),
        provenance={**table.provenance, **about},
    )


def measure_scatter(features: Tensor, labels: Tensor, rank: int = RANK) -> Tensor | None:
    """Measure the scatter within classes, relative to its mean eigenvalue.

    Parameters
    ----------
    features, labels
        Features of the base classes, shapes ``(sample, dim)`` and ``(sample,)``.
    rank
        Number of principal directions that are kept.

    Returns
    -------
    Shape ``(direction, dim)``, float32, the direction of largest scatter first. ``None`` if samples
    of the same class do not differ.

    Examples
    --------
    >>> z = torch.tensor([[0.0, 0.0], [4.0, 0.0], [9.0, 1.0], [9.0, 1.0]])
    >>> measure_scatter(z, torch.tensor([0, 0, 1, 1])).abs()
    tensor([[1.4142, 0.0000]])
    """
    z = features.double()
    _, own, counts = labels.unique(return_inverse=True, return_counts=True)
    means = z.new_zeros(len(counts), z.shape[1]).index_add_(0, own, z) / counts.unsqueeze(1)
    deviations = z - means[own]
    variances, directions = torch.linalg.eigh(deviations.mT @ deviations)
    mean = variances.clamp_min(0).mean()
    if not mean > 0:
        return None
    kept = variances > 1e-12 * variances.amax()
    kept[:-rank] = False
    rows = directions[:, kept] * (variances[kept] / mean).sqrt()
    principal: Tensor = rows.mT.flip(0).float().contiguous()
    return principal


def _check_classes(encoder: Encoder, dataset: str, split: ImageSplit) -> None:
    """Require the classes that the network records.

    Layouts of a published data set may name its classes differently. So names without any class in
    common are accepted there.
    """
    recorded, found = set(encoder.class_names), set(split.class_names)
    if not recorded or recorded == found or (dataset != _ANY_CLASSES and not recorded & found):
        return
    example = min(recorded ^ found)
    raise DataError(
        f"the train classes must be those that the network was trained on: {len(recorded - found)} "
        f"of its {len(recorded)} classes are missing and {len(found - recorded)} are others (such "
        f"as '{example}'); pass base_root=DIR with the images of its training, or the split file "
        "of its training as splits=FILE."
    )
