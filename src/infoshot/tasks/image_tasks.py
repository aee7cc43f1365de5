"""Few-shot tasks of images, for methods that change the network; drawn by the same sampler.

Task ``i`` consists of the images whose features are task ``i`` of a feature table of the split.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError, ShapeError
from infoshot.core.types import FeatureTable
from infoshot.images.datasets import ImageSplit
from infoshot.tasks.sampler import TaskSampler, TaskSpec


@dataclass(frozen=True, eq=False)
class ImageTask:
    """One few-shot task of images. It deliberately has no field for query labels.

    Parameters
    ----------
    x_sup
        Crops of the support, uint8, shape ``(support, 3, height, width)``.
    y_sup
        Support labels from 0 to ``n_way - 1``, shape ``(support,)``; shots may be unequal.
    x_qry
        Crops of the queries, uint8, shape ``(query, 3, height, width)``.
    n_way
        Number of classes.
    """

    x_sup: Tensor
    y_sup: Tensor
    x_qry: Tensor
    n_way: int

    def validate(self) -> None:
        """Raise if this is not a valid task."""
        checks.at_least("n_way", self.n_way, 2)
        for name, images in (("x_sup", self.x_sup), ("x_qry", self.x_qry)):
            if images.ndim != 4 or images.shape[1] != 3 or 0 in images.shape:
                raise ShapeError(
                    f"{name} must have shape (image, 3, height, width), none of them 0; "
                    f"got {tuple(images.shape)}."
                )
            if images.dtype != torch.uint8:
                raise InvalidArgumentError(
                    f"{name} must hold crops of dtype uint8; got {images.dtype}."
                )
        if self.y_sup.shape != self.x_sup.shape[:1]:
            raise ShapeError(
                f"y_sup must have shape ({len(self.x_sup)},), a label for each image of x_sup; "
                f"got {tuple(self.y_sup.shape)}."
            )
        checks.support_labels(self.y_sup.unsqueeze(0), self.n_way)


def image_sampler(split: ImageSplit, spec: TaskSpec) -> TaskSampler:
    """Return the sampler of tasks of the images of a split, as positions in the split.

    Raises
    ------
    DataError
        If the split has too few images or classes.
    """
    labels, class_names = torch.tensor(split.labels), tuple(split.class_names)
    nothing = torch.empty(len(labels), 0)
    return TaskSampler(FeatureTable(nothing, labels, class_names=class_names), spec)


def image_tasks(
    crops: Tensor, split: ImageSplit, spec: TaskSpec, tasks: range
) -> Iterator[tuple[ImageTask, Tensor]]:
    """Draw tasks of images one by one.

    Parameters
    ----------
    crops
        All images of the split in its order, uint8, as ``load_crops`` decodes them, on any
        device.
    split
        Their labels and class names.
    spec, tasks
        What a task is, and the indices of the tasks to draw.

    Returns
    -------
    Pairs of a task and its query labels, shape ``(query,)``, to compute accuracies with; -1 for
    queries of classes without support.

    Raises
    ------
    ShapeError, DataError
        If ``crops`` does not match the split, or the split has too few images.
    """
    if len(crops) != len(split.labels):
        raise ShapeError(
            f"crops must be the {len(split.labels)} images of the split '{split.name}'; "
            f"got {len(crops)}."
        )
    sampler = image_sampler(split, spec)

    def draw(number: int) -> tuple[ImageTask, Tensor]:
        task = range(number, number + 1)
        support, query = (positions.squeeze(0) for positions in sampler.draw(task))
        y_sup, y_qry = (part.squeeze(0) for part in sampler.labels(task))
        return ImageTask(crops[support], y_sup, crops[query], spec.n_way), y_qry

    return map(draw, tasks)
