"""Features of many images as shards: files that together hold more than fits into memory.

The images, sorted by path, are split into runs of ``shard_size``. Each becomes a file
``shard-NUMBER.safetensors`` or ``shard-NUMBER.parquet`` with the ``features`` of those that can be
read. Its metadata hold, as JSON under ``shard``, their paths in the order of the rows, the reasons
of the others, and a key of everything the shard depends on. Parquet has the paths in a column.
Images of tar archives also have the keys of their samples as ids. A shard that exists with the
right key is not computed again.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from infoshot.backbones import Encoder
from infoshot.core.atomic import make_folder
from infoshot.core.checks import at_least
from infoshot.core.embedding_column import SUFFIX as PARQUET
from infoshot.core.errors import DataError
from infoshot.core.parallel import chunk_ranges
from infoshot.core.parquet_file import read_facts
from infoshot.core.progress import SILENT, Progress
from infoshot.core.tensor_file import read_tensor_file, write_tensor_file
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.features.extract import Encoded, Extraction, encode_images, encoder_provenance
from infoshot.features.parquet_features import write_parquet_features
from infoshot.images.folders import ImageFile
from infoshot.images.webdataset import TarSample

SUFFIXES = (".safetensors", PARQUET)
_KIND = "shard"


@dataclass(frozen=True)
class ShardCounts:
    """Totals over all processes: images, those that cannot be read, shards, and new shards."""

    n_images: int
    n_unreadable: int
    n_shards: int
    n_new: int


def write_shards(
    images: Sequence[ImageFile | TarSample],
    encoder: Encoder,
    how: Extraction,
    out: Path,
    *,
    shard_size: int,
    dtype: torch.dtype,
    suffix: str = ".safetensors",
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = SILENT,
) -> ShardCounts:
    """Write the features of images as shards; each process writes every ``size``-th shard.

    ``suffix`` is the format, one of ``SUFFIXES``.

    Raises
    ------
    DataError
        If the folder holds shards of other images, of another size or of another encoder, or if
        features do not fit into ``dtype``.
    """
    at_least("shard_size", shard_size, 1)
    provenance = {**encoder_provenance(encoder, how), "dtype": str(dtype).removeprefix("torch.")}
    chunks = chunk_ranges(len(images), shard_size)
    names = [f"shard-{number:06}{suffix}" for number in range(len(chunks))]
    make_folder(out)
    found = [path.name for suffix in SUFFIXES for path in out.glob(f"*{suffix}")]
    others = sorted(set(found) - set(names))
    if others:
        raise DataError(
            f"{out / others[0]}: not a shard of these images with shard_size={shard_size}; choose "
            "another folder."
        )
    ranks.check_same(
        "images and weights", json.dumps([provenance, [image.path for image in images]])
    )
    shards = list(zip(names, chunks, strict=True))[ranks.rank :: ranks.size]
    progress.start("extracting", sum(len(chunk) for _, chunk in shards), "images")
    counts = torch.zeros(2, dtype=torch.int64)
    for name, chunk in shards:
        own, path = images[chunk.start : chunk.stop], out / name
        key = _key(own, provenance)
        n_unreadable = _count_unreadable(path, key)
        if n_unreadable is None:
            locations = [image.location for image in own]
            encoded = encode_images(locations, lambda: encoder, how, phase="", progress=progress)
            _write(path, encoded, own, dtype, key)
            n_unreadable = sum(map(bool, encoded.reasons))
            counts[1] += 1
        else:
            progress.advance(len(own))
        counts[0] += n_unreadable
    unreadable, new = ranks.sum(counts).tolist()
    return ShardCounts(len(images), unreadable, len(names), new)


def _key(images: Sequence[ImageFile | TarSample], provenance: Mapping[str, str]) -> str:
    """Hash what a shard depends on: the encoder, and the files with their sizes and times."""
    digest = hashlib.sha256(json.dumps(dict(provenance), sort_keys=True).encode())
    for image in images:
        try:
            facts = image.file.stat()
            about = f"{facts.st_size} {facts.st_mtime_ns}"
        except OSError as error:
            about = str(error.strerror)
        digest.update(json.dumps([image.path, about]).encode())
    return digest.hexdigest()


def _count_unreadable(path: Path, key: str) -> int | None:
    """Count the unreadable images of a finished shard; ``None`` if it must be computed."""
    if not path.exists():
        return None
    try:
        if path.suffix == PARQUET:
            facts, _ = read_facts(path, _KIND)
        else:
            _, facts = read_tensor_file(path, kind=_KIND, only=())
    except DataError as error:
        raise DataError(f"{error} Remove the file to compute it again.") from error
    unreadable = facts.get("unreadable")
    if facts.get("key") != key or not isinstance(unreadable, dict):
        raise DataError(
            f"{path}: a shard of other images, of another size or encoder, or its images have "
            "changed; remove it, or choose another folder."
        )
    return len(unreadable)


def _write(
    path: Path,
    encoded: Encoded,
    images: Sequence[ImageFile | TarSample],
    dtype: torch.dtype,
    key: str,
) -> None:
    features = encoded.features[encoded.readable].to(dtype)
    if not features.isfinite().all():
        raise DataError(f"{path}: the features are too large for float16; pass dtype=float32.")
    pairs = list(zip(images, encoded.reasons, strict=True))
    readable = [image for image, reason in pairs if not reason]
    columns = {"path": [image.path for image in readable]}
    if any(isinstance(image, TarSample) for image in images):
        columns["id"] = [image.key for image in readable if isinstance(image, TarSample)]
    facts = {"key": key, "unreadable": {image.path: reason for image, reason in pairs if reason}}
    if path.suffix == PARQUET:
        write_parquet_features(path, features, columns, facts, kind=_KIND)
    else:
        lists = {f"{name}s": texts for name, texts in columns.items()}
        write_tensor_file(path, {"features": features}, {**facts, **lists}, kind=_KIND)
