"""Compute features of images: of a split into one feature file, or of any images into shards."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from infoshot.backbones import Encoder, EncoderLike, open_checkpoint, open_encoder
from infoshot.core.cache_folder import default_cache_folder
from infoshot.core.checks import unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.outputs import check_outputs
from infoshot.core.places import local_path
from infoshot.core.progress import ProgressLike, open_progress
from infoshot.core.types import AnyPath, FeatureTable
from infoshot.distributed import EngineLike, find_engine, join_processes
from infoshot.features.base_classes import (
    add_base_statistics,
    find_base_images,
    record_training_set,
)
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Extraction, encoder_provenance, extract_split
from infoshot.features.files import write_features
from infoshot.features.ray_shards import write_shards_on_ray
from infoshot.features.shard_files import SUFFIXES, ShardCounts, write_shards
from infoshot.images import open_dataset
from infoshot.images.broken import drop_broken
from infoshot.images.folders import ImageFile, find_images
from infoshot.images.webdataset import TarSample, find_samples

_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def extract(
    dataset: str,
    root: AnyPath,
    *,
    backbone: EncoderLike | None = None,
    checkpoint: AnyPath | None = None,
    split: str = "test",
    out: AnyPath | None = None,
    splits: AnyPath | None = None,
    resize: int | None = None,
    crop: int | None = None,
    base_mean: bool = False,
    base_root: AnyPath | None = None,
    base_dataset: str | None = None,
    dtype: str = "float16",
    device: str | None = None,
    batch_size: int | None = None,
    cache: AnyPath | None = None,
    skip_broken: bool = False,
    progress: ProgressLike = None,
) -> FeatureTable:
    """Compute the features of every image of a split.

    Features are cached while they are computed, so that the same call resumes an interrupted
    extraction. Started by ``torchrun``, the processes share the images and get the same features.

    Parameters
    ----------
    dataset
        ``mini-imagenet``, ``tiered-imagenet``, ``cub``, or ``folder`` for any class folders.
    root
        Class folders, a folder with CSV lists, tar archives of class folders, or pickles.
    backbone
        Any encoder that :func:`infoshot.open_encoder` opens; with a PyTorch file as
        ``checkpoint``, the network that its weights belong to.
    checkpoint
        The folder of a checkpoint, the folder of a training run (its ``best`` checkpoint), or a
        PyTorch file of weights.
    split
        ``train``, ``val`` or ``test``.
    out
        Feature file to write.
    splits
        JSON file with the classes of each split.
    resize, crop
        Pixels of the shorter side and of the central square; by default what the encoder expects.
    base_mean
        Also compute the mean feature of the base classes, which ``simpleshot`` needs, and the
        scatter within them, which ``tim-auto`` uses. These are the classes that the network was
        trained on; if that is unknown, the train classes of ``dataset``.
    base_root
        The images of the base classes, if they are not under ``root``; implies ``base_mean``.
    base_dataset
        The data set that the network was trained on; by default what the checkpoint records.
    dtype
        ``float16`` or ``float32``.
    device
        ``cpu``, ``cuda``, ...; by default ``cuda`` if there is a GPU.
    batch_size
        Images per forward pass.
    cache
        Folder in which features are cached; by default the user's cache folder.
    skip_broken
        Skip images that cannot be decoded, with a warning, instead of raising an error.
    progress
        See :mod:`infoshot.core.progress`.

    Returns
    -------
    Features, labels, class names and provenance.

    Raises
    ------
    InvalidArgumentError, DataError
        If an argument is not allowed, or the images cannot be read.

    Examples
    --------
    >>> table = extract("folder", "data", split="val", backbone="efficientnet-lite0")
    >>> table.features.shape, table.class_names
    (torch.Size([12, 1280]), ('d', 'e'))
    """
    if dtype not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", dtype, _DTYPES))
    encoder = _open(backbone, checkpoint)
    if base_dataset is not None:
        encoder = record_training_set(encoder, base_dataset)
    root, splits = Path(root), None if splits is None else Path(splits)
    base_root = None if base_root is None else Path(base_root)
    check_outputs([root, *filter(None, [base_root])], [None if out is None else Path(out)])
    with (
        join_processes(device) as ranks,
        open_progress(progress, shown=ranks.is_main) as bar,
    ):
        how = Extraction(resize=resize, crop=crop, batch_size=batch_size, device=ranks.device)
        provenance = encoder_provenance(encoder, how)
        folder = Path(cache) if cache else default_cache_folder()
        kept = FeatureCache(folder, provenance, encoder.backbone.feature_dim)
        images = open_dataset(dataset, root, splits)
        wanted = [(dataset, images.split(split))]
        if base_mean or base_root is not None:
            wanted.append(find_base_images(encoder, images, base_root, splits))
        if skip_broken:
            wanted = [
                (name, drop_broken(part, warn=ranks.is_main, progress=bar)) for name, part in wanted
            ]
        table, *base = (
            extract_split(name, part, encoder, how, cache=kept, ranks=ranks, progress=bar)
            for name, part in wanted
        )
    features = table.features.to(_DTYPES[dtype])
    if not features.isfinite().all():
        raise DataError(f"the features are too large for {dtype}; pass dtype=float32.")
    table = dataclasses.replace(table, features=features)
    if base:
        table = add_base_statistics(table, base[0])
    if out is not None and ranks.is_main:
        write_features(out, table)
    return table


def extract_shards(
    images: AnyPath,
    out: AnyPath,
    *,
    backbone: EncoderLike = "efficientnet-lite0",
    shard_size: int = 10_000,
    dtype: str = "float16",
    device: str | None = None,
    format: str = "safetensors",
    engine: EngineLike = "torchrun",
    progress: ProgressLike = None,
) -> ShardCounts:
    """Compute the features of any images as shards for :func:`infoshot.solve_shards`.

    Shards that are finished are kept, so that an interrupted extraction resumes. Started by
    ``torchrun``, the processes share the shards and write the same files as a single process.

    Parameters
    ----------
    images
        A folder tree of images, a CSV file with a column ``path``, a text file with a path per
        line, or tar archives of the webdataset format: one, a folder of them, or a pattern.
    out
        Folder for the shards.
    backbone
        Any encoder that :func:`infoshot.open_encoder` opens.
    shard_size
        Images per shard.
    dtype
        ``float16`` or ``float32``.
    format
        ``safetensors``, or ``parquet`` with the columns ``path``, ``embedding`` and, of tar
        archives, ``id``.
    engine
        ``torchrun``: this process, or those that ``torchrun`` started. ``ray``, or a
        :class:`infoshot.RayEngine`: the workers of a Ray cluster, which write the same files. A
        worker that is lost is replaced.
    device, progress
        As in :func:`extract`.

    Returns
    -------
    The numbers of images, of images that cannot be read, of shards, and of new shards.

    Raises
    ------
    InvalidArgumentError, DataError
        If an argument is not allowed, or ``out`` holds other shards.

    Examples
    --------
    >>> counts = extract_shards("photos", "shards", shard_size=5000)
    >>> counts.n_images, counts.n_shards
    (8, 1)
    """
    if dtype not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", dtype, _DTYPES))
    formats = {suffix[1:]: suffix for suffix in SUFFIXES}
    if format not in formats:
        raise InvalidArgumentError(unknown_name("format", format, formats))
    images, out = local_path("images", images), local_path("out", out)
    form: Any = {"shard_size": shard_size, "dtype": _DTYPES[dtype], "suffix": formats[format]}
    on_ray = find_engine(engine)
    if on_ray is not None:
        files = _find_files(images, out)
        with open_progress(progress) as bar:
            return write_shards_on_ray(
                files, backbone, out, **form, engine=on_ray, device=device, progress=bar
            )
    with (
        join_processes(device) as ranks,
        open_progress(progress, shown=ranks.is_main) as bar,
    ):
        files = _find_files(images, out)
        encoder, how = open_encoder(backbone), Extraction(device=ranks.device)
        return write_shards(files, encoder, how, out, **form, ranks=ranks, progress=bar)


def _find_files(images: Path, out: Path) -> Sequence[ImageFile | TarSample]:
    """Find images; the archives of a folder are read only if it has no image files."""
    if not images.is_dir():
        return find_samples(images) or find_images(images, without=[out])
    try:
        return find_images(images, without=[out])
    except DataError:
        samples = find_samples(images)
        if samples is None:
            raise
        return samples


def _open(backbone: EncoderLike | None, checkpoint: AnyPath | None) -> Encoder:
    """Open the encoder that ``extract`` is asked for."""
    if checkpoint is None:
        if backbone is None:
            raise InvalidArgumentError(
                "an encoder is needed: pass checkpoint=FOLDER, or backbone=NAME of an encoder."
            )
        return open_encoder(backbone)
    return open_checkpoint(checkpoint, backbone)
