"""The one path from images to features: read, crop, encode, cache.

``extract``, ``extract-shards``, ``label`` and ``predict`` all call :func:`encode_images`, so that
an image and an encoder determine the bytes of a feature on one kind of device. Since batches have
one size and run on one core each (``encoding.py``), a feature does not depend on how many images
there are, on its neighbours, on the process that computes it, or on the number of cores.
"""

import dataclasses
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from infoshot.backbones import Encoder
from infoshot.core import checks
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.parallel import chunk_ranges
from infoshot.core.pixels import Pixels
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import FeatureTable
from infoshot.distributed import SINGLE_PROCESS, Ranks, gather_chunks, shard_chunks
from infoshot.features.cache import FeatureCache
from infoshot.features.encoding import encode_batches
from infoshot.images import ImageSplit
from infoshot.images.decoding import DECODING, Location, decode_workers, map_images, read_crop
from infoshot.version import __version__

_SMALLEST, _LARGEST = 16, 4096  # pixels of a side
_MOST_AT_ONCE = 8192  # images per forward pass; all batches are padded to this size
_CACHED_AT_ONCE = 16  # batches that a killed run may have to encode again


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """How features are computed.

    Parameters
    ----------
    resize, crop
        Pixels; ``None`` takes what the backbone expects.
    batch_size
        Images per forward pass; ``None``: 4 on a CPU, where larger batches leave the cache, else
        256.
    device
        Where the network runs. Device and batch size may change the rounding of features.
    n_workers
        Cores that decode images.
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

    def sizes(self, encoder: Encoder) -> tuple[int, int]:
        """Return ``resize`` and ``crop`` for this encoder.

        Raises
        ------
        InvalidArgumentError
            If a number is not allowed, or the crop does not fit.
        """
        spec = encoder.backbone.input_spec
        resize = spec.resize if self.resize is None else self.resize
        crop = spec.crop if self.crop is None else self.crop
        checks.device(self.device)
        checks.at_least("batch_size", self.images_per_pass(), 1, _MOST_AT_ONCE)
        checks.at_least("crop", crop, _SMALLEST)
        checks.at_least("resize", resize, _SMALLEST, _LARGEST)
        if crop > resize:
            raise InvalidArgumentError(f"crop must be at most resize; got {crop} and {resize}.")
        return resize, crop


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features of images.

    Parameters
    ----------
    features
        Shape ``(image, dim)``, float32, on the CPU; NaN where an image cannot be read.
    digests
        The sha256 of each image's content; empty where it cannot be read.
    reasons
        Why an image cannot be read; empty where it can.
    images_per_second
        Speed of the encoder; ``None`` if all features were cached.
    """

    features: Tensor
    digests: list[str]
    reasons: list[str]
    images_per_second: float | None = None

    @property
    def readable(self) -> Tensor:
        """Mask of the images that have features."""
        return torch.tensor([not reason for reason in self.reasons], dtype=torch.bool)

    def __getitem__(self, some: slice) -> "Encoded":
        return Encoded(self.features[some], self.digests[some], self.reasons[some])


def encoder_provenance(encoder: Encoder, how: Extraction) -> dict[str, str]:
    """Everything that features depend on besides the image, as text."""
    resize, crop = how.sizes(encoder)
    return {
        "backbone": encoder.backbone_name,
        "weights_sha256": encoder.digest,
        "transform": f"resize {resize}, crop {crop}, bilinear, {DECODING}",
        "infoshot": __version__,
    }


def check_same_encoder(encoder: Encoder, how: Extraction, provenance: Mapping[str, str]) -> None:
    """Raise ``DataError`` if an encoder does not compute features of this provenance any more."""
    now = encoder_provenance(encoder, how)
    for key, difference in (
        ("weights_sha256", "its weights differ"),
        ("transform", "it gets images of another size, or decoded in another way"),
    ):
        if now[key] != provenance[key]:
            raise DataError(
                f"the encoder '{encoder.backbone_name}' has changed since the run: {difference}."
            )


def extract_split(
    dataset: str,
    split: ImageSplit,
    encoder: Encoder,
    how: Extraction,
    *,
    cache: FeatureCache | None = None,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = SILENT,
) -> FeatureTable:
    """Compute the features of a split, with labels, class names and provenance.

    Several processes share the images; all of them get the whole table.

    Raises
    ------
    DataError
        If an image cannot be read; the message names it.
    """
    provenance = split_provenance(dataset, split, encoder, how)
    ranks.check_same("images and weights", json.dumps(provenance, sort_keys=True))
    chunks = chunk_ranges(len(split.records), how.images_per_pass())
    own = [number for chunk in shard_chunks(chunks, ranks) for number in chunk]
    encoded = encode_images(
        [split.records[number].location for number in own],
        lambda: encoder,
        how,
        cache=cache,
        strict=True,
        phase=f"extracting {split.name}",
        progress=progress,
    )
    # A process without images still returns rows of the right width.
    rows = encoded.features if own else torch.empty(0, encoder.backbone.feature_dim)
    features = gather_chunks(rows, chunks, ranks)
    labels, names = torch.tensor(split.labels), tuple(split.class_names)
    about = {**encoder.training_record(), **provenance}
    return FeatureTable(features, labels, None, names, about)


def split_provenance(
    dataset: str, split: ImageSplit, encoder: Encoder, how: Extraction
) -> dict[str, str]:
    """Everything that the features of a split depend on, as text."""
    own = {"dataset": dataset, "split": split.name, "split_sha256": split.digest()}
    return {**own, **encoder_provenance(encoder, how)}


def digest_images(locations: Sequence[Location], n_workers: int) -> list[tuple[str, str]]:
    """Return for every image the sha256 of its content, or an empty digest and the reason."""

    def digest(location: Location) -> tuple[str, str]:
        try:
            return hashlib.sha256(location.content()).hexdigest(), ""
        except DataError as error:
            return "", _reason(error, location)

    with ThreadPoolExecutor(n_workers) as pool:
        return list(pool.map(digest, locations, chunksize=32))


def encode_images(
    locations: Sequence[Location],
    open_encoder: Callable[[], Encoder],
    how: Extraction,
    *,
    cache: FeatureCache | None = None,
    digests: Sequence[tuple[str, str]] | None = None,
    strict: bool = False,
    phase: str = "encoding",
    progress: Progress = SILENT,
) -> Encoded:
    """Compute the features of images, or read them from the cache.

    Parameters
    ----------
    locations
        The images.
    open_encoder
        Returns the encoder; called only if an image is not in the cache.
    how
        How features are computed.
    cache
        Features are read from it and added to it while they are computed, so that an interrupted
        run resumes.
    digests
        What :func:`digest_images` returned for the images; ``None``: computed here if needed.
    strict
        Raise for an image that cannot be read.
    phase, progress
        Counts the images that are not cached, as a phase of that name; without a name, as part of
        the current phase.

    Raises
    ------
    DataError
        If ``strict`` and an image cannot be read.
    """
    known: dict[str, Tensor] = {}
    if cache is not None:
        digests = digests or digest_images(locations, how.n_workers)
        known = cache.read([digest for digest, _ in digests])
    todo = _not_cached(len(locations), digests, known)
    new, speed = Encoded(torch.empty(0, 0), [], []), None
    if todo:
        if phase:
            progress.start(phase, len(todo), "images")
        start = time.perf_counter()
        some = [locations[number] for number in todo]
        new = _encode_and_cache(some, open_encoder(), how, cache, strict, progress)
        speed = len(todo) / (time.perf_counter() - start)
    found = new if digests is None else _collect(digests, known, todo, new)
    if strict:
        for location, reason in zip(locations, found.reasons, strict=True):
            if reason:
                raise DataError(f"{location.name}: {reason}.")
    return dataclasses.replace(found, images_per_second=speed)


def _not_cached(
    n: int, digests: Sequence[tuple[str, str]] | None, known: Mapping[str, Tensor]
) -> list[int]:
    """List the numbers of the images to encode, each content once."""
    if digests is None:
        return list(range(n))
    first: dict[str, int] = {}
    for number, (digest, reason) in enumerate(digests):
        if not reason and digest not in known:
            first.setdefault(digest, number)
    return list(first.values())


def _encode_and_cache(
    locations: Sequence[Location],
    encoder: Encoder,
    how: Extraction,
    cache: FeatureCache | None,
    strict: bool,
    progress: Progress,
) -> Encoded:
    """Encode images in their order, and add them to the cache as they arrive."""
    n = len(locations)
    rows = torch.full((n, encoder.backbone.feature_dim), torch.nan)
    digests, reasons = [""] * n, [""] * n
    resize, crop = how.sizes(encoder)
    read = partial(read_crop if strict else _try_read_crop, resize=resize, crop=crop)
    pending: deque[int] = deque()

    def crops() -> Iterator[Pixels]:
        for number, result in enumerate(map_images(read, locations, how.n_workers)):
            if isinstance(result, str):
                reasons[number] = result
                progress.advance()
                continue
            digests[number], pixels = result
            pending.append(number)
            yield pixels

    at_once = _CACHED_AT_ONCE * how.images_per_pass()
    with nullcontext() if cache is None else cache.open_writer(at_once) as add:
        batches = encode_batches(
            crops(),
            encoder,
            crop=crop,
            batch_size=how.images_per_pass(),
            device=how.device,
            progress=progress,
        )
        for batch in batches:
            for row in batch:
                number = pending.popleft()
                rows[number] = row
                if add is not None:
                    add(digests[number], row)
            progress.advance(len(batch))
    return Encoded(rows, digests, reasons)


def _collect(
    digests: Sequence[tuple[str, str]],
    known: Mapping[str, Tensor],
    todo: Sequence[int],
    new: Encoded,
) -> Encoded:
    """Give every image the row of its content: cached, or new."""
    rows_of, reason_of = dict(known), dict[str, str]()
    for place, number in enumerate(todo):
        digest = digests[number][0]
        rows_of[digest] = new.features[place]
        changed = new.digests[place] not in ("", digest)
        reason_of[digest] = "changed while it was read" if changed else new.reasons[place]
    reasons = [reason or reason_of.get(digest, "") for digest, reason in digests]
    rows = torch.full((len(digests), len(next(iter(rows_of.values()), ()))), torch.nan)
    for number, (digest, _) in enumerate(digests):
        if not reasons[number]:
            rows[number] = rows_of[digest]
    return Encoded(rows, [digest for digest, _ in digests], reasons)


def _try_read_crop(location: Location, resize: int, crop: int) -> tuple[str, Pixels] | str:
    """Return the digest and the crop, or the reason why the image cannot be read."""
    try:
        return read_crop(location, resize, crop)
    except DataError as error:
        return _reason(error, location)


def _reason(error: DataError, location: Location) -> str:
    """Strip the name of the image from a message."""
    return str(error).removeprefix(f"{location.name}: ").removesuffix(".")
