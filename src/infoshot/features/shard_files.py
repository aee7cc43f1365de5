"""Features of a pile of images as shards: files of features for a pile that is too large for one.

The images of a pile, sorted by path, are cut into runs of ``shard_size``; each becomes a file
``shard-NUMBER.safetensors`` with ``features`` of those that could be read. Its metadata has, as
JSON under ``shard``, their paths in the order of the rows, the reasons of the others, and the key
of everything it depends on. A shard that is there with the right key is not made again.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from infoshot.backbones.checkpoints import Checkpoint
from infoshot.core.atomic import make_folder, write_atomically
from infoshot.core.checks import at_least
from infoshot.core.errors import DataError
from infoshot.core.parallel import chunk_ranges
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.features.encode import encode_in_order, encoder_facts
from infoshot.features.extract import Extraction
from infoshot.images.folders import Found


@dataclass(frozen=True)
class Extracted:
    """How many images there are, could not be read, and how many shards; of all processes."""

    n_images: int
    n_unreadable: int
    n_shards: int
    n_made: int


def extract_shards(
    photos: Sequence[Found],
    checkpoint: Checkpoint,
    how: Extraction,
    out: Path,
    *,
    shard_size: int = 10_000,
    dtype: torch.dtype = torch.float16,
    ranks: Ranks = SINGLE_PROCESS,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> Extracted:
    """Write the features of images as shards; every process makes every ``size``-th.

    Raises
    ------
    DataError
        If the folder holds shards of another pile, size or encoder, or features do not fit into
        ``dtype``.
    """
    at_least("shard_size", shard_size, 1)
    facts = {**encoder_facts(checkpoint, how), "dtype": str(dtype).removeprefix("torch.")}
    chunks = chunk_ranges(len(photos), shard_size)
    names = [f"shard-{number:06}.safetensors" for number in range(len(chunks))]
    make_folder(out)
    strange = sorted({path.name for path in out.glob("*.safetensors")} - set(names))
    if strange:
        raise DataError(
            f"{out / strange[0]}: is no shard of this pile cut by {shard_size:,} images; take "
            "another folder."
        )
    ranks.check_same("images and weights", json.dumps([facts, [photo.path for photo in photos]]))
    counts = torch.zeros(2, dtype=torch.int64)
    for name, chunk in list(zip(names, chunks, strict=True))[ranks.rank :: ranks.size]:
        own, path = photos[chunk.start : chunk.stop], out / name
        key = _key(own, facts)
        n_unreadable = _finished(path, key)
        if n_unreadable is None:
            features, reasons = encode_in_order(own, checkpoint, how, on_progress)
            _write(path, features.to(dtype), own, reasons, key)
            n_unreadable = sum(map(bool, reasons))
            counts[1] += 1
        else:
            on_progress(len(own))
        counts[0] += n_unreadable
    unreadable, made = ranks.sum(counts).tolist()
    return Extracted(len(photos), unreadable, len(names), made)


def _key(photos: Sequence[Found], facts: Mapping[str, str]) -> str:
    """Digest of what a shard depends on: the encoder, and the files with their sizes and times."""
    digest = hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode())
    for photo in photos:
        try:
            found = photo.file.stat()
            about = f"{found.st_size} {found.st_mtime_ns}"
        except OSError as error:
            about = str(error.strerror)
        digest.update(json.dumps([photo.path, about]).encode())
    return digest.hexdigest()


def _finished(path: Path, key: str) -> int | None:
    """How many images of a finished shard could not be read; ``None`` if it must be made."""
    try:
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("shard", "{}"))
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{path}: damaged, or no shard ({error}); remove it.") from error
    if facts.get("key") != key:
        raise DataError(
            f"{path}: is a shard of another pile, size or encoder, or its images have changed; "
            "remove it, or take another folder."
        )
    return len(facts["unreadable"])


def _write(
    path: Path, features: Tensor, photos: Sequence[Found], reasons: Sequence[str], key: str
) -> None:
    if not features.isfinite().all():
        raise DataError(f"{path}: the features are too large for float16; --dtype float32 holds.")
    pairs = [(photo.path, reason) for photo, reason in zip(photos, reasons, strict=True)]
    about = {
        "key": key,
        "paths": [name for name, reason in pairs if not reason],
        "unreadable": {name: reason for name, reason in pairs if reason},
    }
    # A single entry, since safetensors writes several in any order.
    metadata = {"shard": json.dumps(about)}
    write_atomically(path, save({"features": features.contiguous()}, metadata=metadata))
