"""Features of many images on a Ray cluster: each worker encodes whole shards, or parts of a set.

Actors of Ray's core are used instead of Ray Data, which moves blocks of rows between its
operators and decides which of them to write where. Here nothing needs to be moved: a worker reads
the images of a shard and writes its file, so a shard is finished or not, whichever worker did it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from infoshot.backbones import Encoder, EncoderLike, open_encoder
from infoshot.core.errors import DataError
from infoshot.core.parallel import chunk_ranges
from infoshot.core.progress import SILENT, Progress
from infoshot.distributed.ray_cluster import RayEngine, choose_workers, open_cluster
from infoshot.distributed.ray_pool import map_on_workers
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Encoded, Extraction, encode_images, encoder_provenance
from infoshot.features.shard_files import ShardCounts, plan_shards, write_shard
from infoshot.images.decoding import Location
from infoshot.images.folders import ImageFile
from infoshot.images.webdataset import TarSample

Images = Sequence[ImageFile | TarSample]
_AT_ONCE = 2000  # images of a piece; a worker that is lost loses one


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
        make = partial(_open_writer, backbone, known, how, dtype)
        shards = plan_shards(len(images), out, shard_size=shard_size, suffix=suffix)
        progress.start("extracting", len(images), "images")
        pieces = [(path, images[chunk.start : chunk.stop]) for path, chunk in shards]
        n_unreadable = n_new = 0
        for number, (unreadable, new) in map_on_workers(ray, make, pieces, workers):
            n_unreadable, n_new = n_unreadable + unreadable, n_new + new
            progress.advance(len(pieces[number][1]))
    return ShardCounts(len(images), n_unreadable, len(shards), n_new)


def encode_images_on_ray(
    locations: Sequence[Location],
    backbone: EncoderLike,
    provenance: Mapping[str, str],
    *,
    cache: Path,
    engine: RayEngine,
    device: str | None = None,
    progress: Progress = SILENT,
) -> Encoded:
    """Compute the features of images, or read them from the cache, in pieces.

    Parameters
    ----------
    locations
        The images.
    backbone, provenance
        The encoder, and what every worker must find its features to depend on.
    cache
        A folder that all nodes share.
    engine, device, progress
        As in :func:`write_shards_on_ray`.
    """
    pieces = [
        locations[chunk.start : chunk.stop] for chunk in chunk_ranges(len(locations), _AT_ONCE)
    ]
    with open_cluster(engine) as ray:
        workers = choose_workers(ray, engine, device)
        how = Extraction(device=workers.device, n_workers=workers.cpus)
        make = partial(_open_encoding, backbone, provenance, how, cache)
        progress.start("encoding", len(locations), "images")
        found: dict[int, Encoded] = {}
        for number, found[number] in map_on_workers(ray, make, pieces, workers):
            progress.advance(len(pieces[number]))
    parts = [found[number] for number in range(len(pieces))]
    return Encoded(
        torch.cat([part.features for part in parts]),
        [digest for part in parts for digest in part.digests],
        [reason for part in parts for reason in part.reasons],
    )


def _open_writer(
    backbone: EncoderLike, provenance: Mapping[str, str], how: Extraction, dtype: torch.dtype
) -> Callable[[tuple[Path, Images]], tuple[int, int]]:
    """Return the function of a worker that writes a shard."""
    encoder = _open_same(backbone, provenance, how)
    return lambda shard: write_shard(*shard, encoder, how, dtype)


def _open_encoding(
    backbone: EncoderLike, provenance: Mapping[str, str], how: Extraction, cache: Path
) -> Callable[[Sequence[Location]], Encoded]:
    """Return the function of a worker that computes features, or reads them from the cache."""
    encoder = _open_same(backbone, provenance, how)
    kept = FeatureCache(cache, dict(provenance), encoder.backbone.feature_dim)
    return lambda locations: encode_images(locations, lambda: encoder, how, cache=kept, phase="")


def _open_same(backbone: EncoderLike, provenance: Mapping[str, str], how: Extraction) -> Encoder:
    """Open the encoder of a worker; raise ``DataError`` if it is not that of the user's process."""
    encoder = open_encoder(backbone)
    if encoder_provenance(encoder, how) != provenance:
        raise DataError(
            f"the encoder '{encoder.backbone_name}' or the version of infoshot differs between the "
            "nodes of the Ray cluster; all of them need the same files and packages."
        )
    return encoder
