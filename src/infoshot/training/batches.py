"""Batches of augmented images, reproducible from the seed.

The order of an epoch is a permutation drawn from (seed, epoch); the augmentation of an image is
drawn from (seed, epoch, image). Neither depends on restarts or on the number of processes. Images
stay on the device if they fit. On a CPU a thread prepares the next batch during each step.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from infoshot.backbones import InputSpec
from infoshot.core.errors import DataError
from infoshot.core.rng import random_bits
from infoshot.distributed import Ranks
from infoshot.images.augmentation import Augmentation, augment, draw_augmentation
from infoshot.images.in_memory import StoredImages
from infoshot.training.config import TrainConfig
from infoshot.training.run_config import RunConfig
from infoshot.training.training_images import TrainingImages

Item = TypeVar("Item")
Batch = TypeVar("Batch")
_ORDER = 3  # stream of random numbers
_LARGEST_SHARE = 0.5  # of the free memory of a device, for images


class Batches:
    """All batches of a training run.

    Parameters
    ----------
    images
        The training images.
    spec
        The input that the network expects.
    config
        Batch size, seed and augmentation. The batch size must be a multiple of the number of
        processes; with fewer images than that, all of them form one batch. An epoch leaves out
        the images that do not fill a batch; the next epoch draws a new order.
    ranks
        The processes; each takes an equal part of every batch.
    compile
        Whether to compile the augmentation.
    """

    def __init__(
        self,
        images: TrainingImages,
        spec: InputSpec,
        config: TrainConfig,
        *,
        ranks: Ranks,
        compile: bool = False,
    ) -> None:
        self._ranks, self._config = ranks, config
        self._n_images = len(images.train_labels)
        self._batch_size = min(config.images_per_step(), self._n_images // ranks.size * ranks.size)
        if self._batch_size == 0:
            raise DataError(f"{self._n_images} images are too few for {ranks.size} processes.")
        self._images = AugmentedImages(
            images.train, spec, config, ranks.device, crop=config.train_crop, compile=compile
        )
        self._labels = images.train_labels.to(ranks.device)

    def __len__(self) -> int:
        return self._n_images // self._batch_size

    @property
    def n_images(self) -> int:
        """Images of an epoch, over all processes."""
        return len(self) * self._batch_size

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the network inputs and labels of this process, batch by batch."""
        device = self._ranks.device
        number = torch.tensor([epoch], device=device)
        order = random_bits(self._config.seed, _ORDER, number, (self._n_images,))[0]
        batches = order.argsort(stable=True)[: self.n_images].view(len(self), self._batch_size)
        parts = batches[:, self._ranks.rank :: self._ranks.size]

        def batch(indices: Tensor) -> tuple[Tensor, Tensor]:
            return self._images(epoch, indices), self._labels[indices]

        return prepare_ahead(batch, list(parts), device)


class AugmentedImages:
    """Training images that are augmented when they are read, on the device if they fit.

    Parameters
    ----------
    images
        The images as they are stored.
    spec
        The input that the network expects.
    config
        Seed and augmentation.
    device
        Where the network runs.
    crop
        Side of the augmented images in pixels; ``None``: what the network expects.
    compile
        Whether to compile the augmentation.
    """

    def __init__(
        self,
        images: StoredImages,
        spec: InputSpec,
        config: RunConfig,
        device: str,
        *,
        crop: int | None = None,
        compile: bool = False,
    ) -> None:
        self._config, self._spec, self._device = config, spec, device
        self._crop = spec.crop if crop is None else crop
        self._images = move_if_it_fits(images.images, device)
        self._sizes = images.sizes.to(device)
        self._input = torch.compile(_network_input) if compile else _network_input

    def __call__(self, moment: int | Tensor, indices: Tensor) -> Tensor:
        """Return network inputs of images at a moment: the epoch, or the episode of each image."""
        config = self._config
        drawn = draw_augmentation(
            config.seed,
            moment,
            indices,
            self._sizes[indices],
            crop_area=config.crop_area,
            crop_aspect=config.crop_aspect,
            jitter=config.jitter,
            flip=config.flip,
        )
        images = self._images[indices.to(self._images.device)].to(self._device)
        return self._input(images, drawn.box, drawn.flip, drawn.jitter, self._crop, self._spec)


def prepare_ahead(
    prepare: Callable[[Item], Batch], items: Sequence[Item], device: str
) -> Iterator[Batch]:
    """Yield what ``prepare`` makes of every item; on a CPU a thread works one item ahead."""
    if torch.device(device).type != "cpu":
        yield from map(prepare, items)
        return
    with ThreadPoolExecutor(1) as worker:
        ahead = worker.submit(prepare, items[0])
        for following in (*items[1:], None):
            current = ahead
            if following is not None:
                ahead = worker.submit(prepare, following)
            yield current.result()


def _network_input(
    images: Tensor, box: Tensor, flip: Tensor, jitter: Tensor, crop: int, spec: InputSpec
) -> Tensor:
    x = augment(images, Augmentation(box, flip, jitter), crop)
    return spec.normalise(x).contiguous(memory_format=torch.channels_last)


def move_if_it_fits(images: Tensor, device: str) -> Tensor:
    """Move images to a device if they leave enough of its memory to the network."""
    if torch.device(device).type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if images.nbytes > _LARGEST_SHARE * free:
            return images
    return images.to(device)
