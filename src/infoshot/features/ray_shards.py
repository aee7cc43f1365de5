"""Features of many images on a Ray cluster: each worker encodes whole shards, or parts of a set.

Actors of Ray's core are used instead of Ray Data, which moves blocks of rows between its
operators and decides which of them to write where. Here nothing needs to be moved: a worker reads
the images of a shard and writes its file, so a shard is finished or not, whichever worker did it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from infoshot.backbones import EncoderLike, open_encoder
from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.distributed.ray_cluster import RayEngine, choose_workers, open_cluster
from infoshot.distributed.ray_pool import map_on_workers
from infoshot.features.extract import Extraction, encoder_provenance
from infoshot.features.shard_files import ShardCounts, plan_shards, write_shard
from infoshot.images.folders import ImageFile
from infoshot.images.webdataset import TarSample

Images = Sequence[ImageFile | TarSample]


@dataclass(frozen=True, eq=False, kw_only=True)
class _ShardWriter:
    """What every worker needs; it opens the encoder by itself."""

    backbone: EncoderLike
    provenance: dict[str, str]
    how: Extraction
    dtype: torch.dtype

    def __call__(self) -> Callable[[tuple[Path, Images]], tuple[int, int]]:
        """Open the encoder, and return the function that writes a shard."""
        encoder = open_encoder(self.backbone)
        if encoder_provenance(encoder, self.how) != self.provenance:
            raise DataError(
                f"the encoder '{encoder.backbone_name}' or the version of infoshot differs between "
                "the nodes of the Ray cluster; all of them need the same files and packages."
            )
        return lambda shard: write_shard(*shard, encoder, self.how, self.dtype)


def write_shards_on_ray(
    images: Images,
    backbone: EncoderLike,
    out: Path,
    *,
    shard_size: int,
    dtype: torch.dtype,
    suffix: str,
    engine: RayEngine,
    device: str | None = None,
    progress: Progress = SILENT,
) -> ShardCounts:
    """Write the features of images as shards, as :func:`~.shard_files.write_shards` does.

    Raises
    ------
    DataError
        As there, or if the nodes have different encoders.
    LostProcessError
        If several workers end at the same shard.
    """
    with open_cluster(engine) as ray:
        workers = choose_workers(ray, engine, device)
        how = Extraction(device=workers.device, n_workers=workers.cpus)
        known = encoder_provenance(open_encoder(backbone), dataclasses.replace(how, device="cpu"))
        make = _ShardWriter(backbone=backbone, provenance=known, how=how, dtype=dtype)
        shards = plan_shards(len(images), out, shard_size=shard_size, suffix=suffix)
        progress.start("extracting", len(images), "images")
        pieces = [(path, images[chunk.start : chunk.stop]) for path, chunk in shards]
        n_unreadable = n_new = 0
        for number, (unreadable, new) in map_on_workers(ray, make, pieces, workers):
            n_unreadable, n_new = n_unreadable + unreadable, n_new + new
            progress.advance(len(pieces[number][1]))
    return ShardCounts(len(images), n_unreadable, len(shards), n_new)
