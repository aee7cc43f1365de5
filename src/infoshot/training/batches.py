"""Batches of augmented images, the same whoever makes them and whenever.

The order of an epoch is a permutation drawn from (seed, epoch), what happens to an image is drawn
from (seed, epoch, image): restarts and the number of processes change nothing. Images that fit stay
on the device; on a CPU a worker makes the next batches while the network learns from this one.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from infoshot.backbones import InputSpec
from infoshot.core.errors import DataError
from infoshot.core.rng import random_bits
from infoshot.distributed import Ranks
from infoshot.images.transforms import Augmentation, augment, draw_augmentation
from infoshot.training.training_images import TrainingImages

_ORDER = 3  # stream of random numbers
_LARGEST_SHARE = 0.5  # of the free memory of a device, for images


class Batches:
    """All batches of a training, epoch by epoch.

    Parameters
    ----------
    images
        What to learn from.
    spec
        What the network wants to see.
    batch_size
        Images per step over all processes, a multiple of their number; where there are fewer
        images, as many as there are. What is left over in an epoch waits for the next one.
    seed
        Of order and augmentation.
    ranks
        This process among the others; each takes an equal part of every batch.
    compiled
        Whether to compile the augmentation.
    """

    def __init__(
        self,
        images: TrainingImages,
        spec: InputSpec,
        *,
        batch_size: int,
        seed: int,
        ranks: Ranks,
        compiled: bool = False,
    ) -> None:
        self._ranks, self._seed, self._spec = ranks, seed, spec
        self._n_images = len(images.train_labels)
        self._batch_size = min(batch_size, self._n_images // ranks.size * ranks.size)
        if self._batch_size == 0:
            raise DataError(f"{self._n_images} images are too few for {ranks.size} processes.")
        stored = images.train.images
        self._images = on_device_if_it_fits(stored, ranks.device)
        self._sizes = images.train.sizes.to(ranks.device)
        self._labels = images.train_labels.to(ranks.device)
        self._input = torch.compile(_network_input) if compiled else _network_input

    def __len__(self) -> int:
        return self._n_images // self._batch_size

    @property
    def n_images(self) -> int:
        """Images of an epoch, over all processes."""
        return len(self) * self._batch_size

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Network inputs and labels of the batches of an epoch, the part of this process."""
        device = self._ranks.device
        number = torch.tensor([epoch], device=device)
        order = random_bits(self._seed, _ORDER, number, (self._n_images,))[0]
        batches = order.argsort(stable=True)[: self.n_images].view(len(self), self._batch_size)
        parts = batches[:, self._ranks.rank :: self._ranks.size]
        if torch.device(device).type != "cpu":
            yield from (self._batch(epoch, indices) for indices in parts)
            return
        with ThreadPoolExecutor(1) as worker:
            ahead = worker.submit(self._batch, epoch, parts[0])
            for following in (*parts[1:], None):
                current = ahead
                if following is not None:
                    ahead = worker.submit(self._batch, epoch, following)
                yield current.result()

    def _batch(self, epoch: int, indices: Tensor) -> tuple[Tensor, Tensor]:
        what = draw_augmentation(self._seed, epoch, indices, self._sizes[indices])
        images = self._images[indices.to(self._images.device)].to(self._ranks.device)
        return self._input(images, what.box, what.flip, what.jitter, self._spec), self._labels[
            indices
        ]


def _network_input(
    images: Tensor, box: Tensor, flip: Tensor, jitter: Tensor, spec: InputSpec
) -> Tensor:
    x = augment(images, Augmentation(box, flip, jitter), spec.crop)
    return spec.normalise(x).contiguous(memory_format=torch.channels_last)


def on_device_if_it_fits(images: Tensor, device: str) -> Tensor:
    """Move images to where they are needed, if they leave enough of its memory to the network."""
    if torch.device(device).type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if images.nbytes > _LARGEST_SHARE * free:
            return images
    return images.to(device)
