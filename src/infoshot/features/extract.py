"""Features of images: decode, crop as published, one pass through a frozen network.

Batches always have the same size (the last one is filled up with black), so that a feature does not
depend on how many images there are, where its image stands among them, which process makes it, or
how many cores it has.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from infoshot.backbones import Backbone, InputSpec
from infoshot.backbones.checkpoints import Checkpoint
from infoshot.core import checks
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.parallel import chunk_ranges, map_chunks
from infoshot.core.types import FeatureTable
from infoshot.distributed import SINGLE_PROCESS, Ranks, gather_chunks, shard_chunks
from infoshot.features.cache import cached
from infoshot.images.datasets import ImageSplit
from infoshot.images.decoding import Pixels
from infoshot.images.in_memory import channels_first, published_crop
from infoshot.images.transforms import network_input
from infoshot.images.workers import decode_workers, map_images
from infoshot.version import __version__

Progress = Callable[[int], None]
_SMALLEST, _LARGEST = 16, 4096  # sides of a crop that a network can look at


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """How features are made of images.

    ``resize`` and ``crop`` are pixels; ``None`` takes what the backbone wants. ``batch_size``
    images make a pass; ``None``: 4 on a CPU, where larger batches leave the cache, 256 elsewhere.
    ``n_workers`` decode images while the network works. Only ``resize`` and ``crop`` change the
    features; ``batch_size`` and ``device`` may round them differently.
    """

    resize: int | None = None
    crop: int | None = None
    batch_size: int | None = None
    device: str = "cpu"
    n_workers: int = field(default_factory=decode_workers)

    def images_per_pass(self) -> int:
        """Return the batch size that is used."""
        if self.batch_size is not None:
            return self.batch_size
        return 4 if torch.device(self.device).type == "cpu" else 256

    def sizes(self, checkpoint: Checkpoint) -> tuple[int, int]:
        """Return ``resize`` and ``crop`` for this backbone.

        Raises
        ------
        InvalidArgumentError
            If a number is not allowed, or the crop does not fit.
        """
        spec = checkpoint.backbone.input_spec
        resize = spec.resize if self.resize is None else self.resize
        crop = spec.crop if self.crop is None else self.crop
        checks.device(self.device)
        checks.at_least("batch_size", self.images_per_pass(), 1)
        checks.at_least("crop", crop, _SMALLEST)
        checks.at_least("resize", resize, _SMALLEST)
        if resize > _LARGEST:
            raise InvalidArgumentError(f"resize must be at most {_LARGEST}; got {resize}.")
        if crop > resize:
            raise InvalidArgumentError(f"crop must be at most resize; got {crop} and {resize}.")
        return resize, crop


def split_features(
    dataset: str,
    split: ImageSplit,
    checkpoint: Checkpoint,
    how: Extraction,
    *,
    cache: Path | None = None,
    ranks: Ranks = SINGLE_PROCESS,
    on_progress: Progress = lambda n_done: None,
) -> FeatureTable | None:
    """Features of a split with labels, class names and provenance, from the cache or made now.

    Returns
    -------
    ``None`` in processes other than the main one.
    """
    about = provenance(dataset, split, checkpoint, how)
    ranks.check_same("images and weights", json.dumps(about, sort_keys=True))

    def make() -> FeatureTable:
        features = extract_features(split, checkpoint, how, ranks=ranks, on_progress=on_progress)
        return feature_table(split, features, about)

    table = make() if cache is None else cached(cache, about, make, ranks)
    return table if ranks.is_main else None


def extract_features(
    split: ImageSplit,
    checkpoint: Checkpoint,
    how: Extraction,
    *,
    ranks: Ranks = SINGLE_PROCESS,
    on_progress: Progress = lambda n_done: None,
) -> Tensor:
    """Features of every image of a split, in its order.

    Several processes take turns at the batches, and all of them get all features.

    Returns
    -------
    Shape ``(image, feature_dim)``, float32, on the CPU.

    Raises
    ------
    DataError
        If an image cannot be decoded; the sentence names it.
    """
    chunks = chunk_ranges(len(split.records), how.images_per_pass())
    own = [split.records[number] for chunk in shard_chunks(chunks, ranks) for number in chunk]
    resize, crop = how.sizes(checkpoint)
    crop_of = partial(published_crop, resize=resize, crop=crop)
    features = [torch.empty(0, checkpoint.backbone.feature_dim)]
    for rows in encoded_batches(map_images(crop_of, own, how.n_workers), checkpoint, how):
        features.append(rows)
        on_progress(len(rows))
    return gather_chunks(torch.cat(features), chunks, ranks).clone()


def encoded_batches(
    crops: Iterator[Pixels], checkpoint: Checkpoint, how: Extraction
) -> Iterator[Tensor]:
    """Features of crops as they come, batch after batch, each ``(image, feature_dim)`` on the CPU.

    Raises
    ------
    DataError
        If features are not finite.
    """
    # With the channels last convolutions are several times faster, on CPUs and on GPUs.
    backbone = checkpoint.backbone.eval()
    backbone.to(device=torch.device(how.device), memory_format=torch.channels_last)  # type: ignore[call-overload]
    n_pass = how.images_per_pass()

    @torch.inference_mode()
    def features(batch: list[Pixels]) -> Tensor:
        images = channels_first(np.stack(batch))
        padding = images.new_zeros(n_pass - len(images), *images.shape[1:])
        return encode(backbone, torch.cat((images, padding)).to(how.device))[: len(images)].cpu()

    batches = iter(lambda: list(islice(crops, n_pass)), [])
    # A core per batch, not all cores in one: threads that share a layer wait for each other
    # actively, and where something else wants a core as well they take three times as long.
    on_cpu = all(weights.device.type == "cpu" for weights in backbone.parameters())
    n_threads = torch.get_num_threads() if on_cpu else 1
    # Whole float32 products: features are made once, and should not depend on the device.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for rows in map_chunks(features, batches, n_threads, split_single=False):
            if not rows.isfinite().all():
                raise DataError(
                    f"the weights of this {checkpoint.backbone_name} give features that are not "
                    "finite."
                )
            yield rows.clone()  # an ordinary tensor, outside of inference


def encode(backbone: Backbone, images: Tensor) -> Tensor:
    """Features of a batch of crops, uint8, float32."""
    return backbone(prepared_images(images, backbone.input_spec)).float()  # type: ignore[no-any-return]


def prepared_images(images: Tensor, spec: InputSpec) -> Tensor:
    """Crops, uint8, as a network wants them: float32, centred and scaled, channels last."""
    x = (images.float() / 255).to(memory_format=torch.channels_last)
    return network_input(x, spec.mean, spec.std)


def provenance(
    dataset: str, split: ImageSplit, checkpoint: Checkpoint, how: Extraction
) -> dict[str, str]:
    """Everything the features depend on, as text; features are kept under its digest."""
    resize, crop = how.sizes(checkpoint)
    return {
        "dataset": dataset,
        "split": split.name,
        "split_sha256": split.digest(),
        "backbone": checkpoint.backbone_name,
        "weights_sha256": checkpoint.digest,
        "transform": f"resize {resize}, crop {crop}, bilinear",
        "infoshot": __version__,
    }


def feature_table(
    split: ImageSplit, features: Tensor, about: dict[str, str], base_mean: Tensor | None = None
) -> FeatureTable:
    """Features with the labels and class names of their split."""
    labels = torch.tensor(split.labels)
    return FeatureTable(features, labels, base_mean, tuple(split.class_names), about)
