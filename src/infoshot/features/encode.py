"""Features of image files: each read, digested, and seen by the encoder unless it was before."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from infoshot.backbones.checkpoints import Checkpoint
from infoshot.core.errors import DataError
from infoshot.features.extract import Extraction, encoded_batches
from infoshot.features.store import FeatureStore
from infoshot.images.decoding import FileLocation, ImageRecord, Pixels, decode
from infoshot.images.folders import Found
from infoshot.images.transforms import resize_and_crop
from infoshot.images.workers import map_images
from infoshot.version import __version__

_KEPT_AT_ONCE = 64  # images that a killed run may have to see again


@dataclass(frozen=True, eq=False)
class Encoded:
    """What is known of each file: features, NaN where it could not be read; digest; reason."""

    features: Tensor
    digests: list[str]
    reasons: list[str]

    @property
    def readable(self) -> Tensor:
        """Mask of the files that have features."""
        return torch.tensor([not reason for reason in self.reasons], dtype=torch.bool)


def encoder_facts(checkpoint: Checkpoint, how: Extraction) -> dict[str, str]:
    """Everything the features depend on, besides the image."""
    resize, crop = how.sizes(checkpoint)
    return {
        "backbone": checkpoint.backbone_name,
        "weights_sha256": checkpoint.digest,
        "transform": f"resize {resize}, crop {crop}, bilinear, JPEG from twice the size",
        "infoshot": __version__,
    }


def digest_files(files: Sequence[Found], n_workers: int) -> list[tuple[str, str]]:
    """The sha256 of every file and an empty reason, or an empty digest and the reason."""

    def look(found: Found) -> tuple[str, str]:
        trouble = found.trouble()
        if trouble:
            return "", trouble
        try:
            return hashlib.sha256(FileLocation(found.file).content()).hexdigest(), ""
        except DataError as error:
            return "", _reason(error, str(found.file))

    with ThreadPoolExecutor(n_workers) as pool:
        return list(pool.map(look, files, chunksize=32))


def encode_files(
    files: Sequence[Found],
    looked: Sequence[tuple[str, str]],
    encoder: Callable[[], Checkpoint],
    how: Extraction,
    store: FeatureStore,
    *,
    on_start: Callable[[int], None] = lambda n_new: None,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> Encoded:
    """Features of files that :func:`digest_files` has looked at.

    The encoder is asked for only if it has to see something; ``on_start`` is told how many. They
    are kept as they come, so that an interrupted run goes on where it was.
    """
    known = store.read([digest for digest, _ in looked])
    new = {
        digest: found
        for found, (digest, reason) in zip(files, looked, strict=True)
        if not reason and digest not in known
    }
    on_start(len(new))
    failures: dict[str, str] = {}
    made = _seen(new, encoder(), how, failures) if new else iter(())
    while some := list(islice(made, _KEPT_AT_ONCE)):
        digests, rows = zip(*some, strict=True)
        store.add(digests, torch.stack(rows))
        known.update(some)
        on_progress(len(some))
    store.tidy()
    if not known:
        raise DataError("no image can be read.")
    features = torch.full((len(files), len(next(iter(known.values())))), torch.nan)
    reasons = []
    for number, (digest, reason) in enumerate(looked):
        why = reason or failures.get(digest, "")
        if not why and digest not in known:
            why = "changed while it was read"
        reasons.append(why)
        if not why:
            features[number] = known[digest]
    return Encoded(features, [digest for digest, _ in looked], reasons)


def _seen(
    files: Mapping[str, Found], checkpoint: Checkpoint, how: Extraction, failures: dict[str, str]
) -> Iterator[tuple[str, Tensor]]:
    """Digest and features of every file that decodes; reasons of others go into ``failures``."""
    digests: deque[str] = deque()

    def crops() -> Iterator[Pixels]:
        results = _digests_and_crops(list(files.values()), checkpoint, how)
        for digest, pixels in _decoded(results, files, failures):
            digests.append(digest)
            yield pixels

    for rows in encoded_batches(crops(), checkpoint, how):
        yield from ((digests.popleft(), row) for row in rows)


def encode_in_order(
    files: Sequence[Found],
    checkpoint: Checkpoint,
    how: Extraction,
    on_progress: Callable[[int], None] = lambda n_done: None,
) -> tuple[Tensor, list[str]]:
    """Features of the files that decode, in their order, and of every file why not, or nothing.

    Nothing is kept: for piles whose features go into files of their own.
    """
    reasons: list[str] = []

    def crops() -> Iterator[Pixels]:
        looked = [found.trouble() for found in files]
        fine = [found for found, trouble in zip(files, looked, strict=True) if not trouble]
        results = _digests_and_crops(fine, checkpoint, how)
        for trouble in looked:
            result = trouble or next(results)
            reasons.append(result if isinstance(result, str) else "")
            if not isinstance(result, str):
                yield result[1]

    rows = [torch.empty(0, checkpoint.backbone.feature_dim)]
    for some in encoded_batches(crops(), checkpoint, how):
        rows.append(some)
        on_progress(len(some))
    return torch.cat(rows), reasons


def _digests_and_crops(
    files: Sequence[Found], checkpoint: Checkpoint, how: Extraction
) -> Iterator[tuple[str, Pixels] | str]:
    """Of every file its digest and crop, or why there is none; a little ahead, in order."""
    resize, crop = how.sizes(checkpoint)
    places = [FileLocation(found.file) for found in files]
    records = [ImageRecord("", place.name, place) for place in places]
    work = partial(_digest_and_crop, resize=resize, crop=crop)
    return map_images(work, records, how.n_workers)


def _decoded(
    results: Iterable[tuple[str, Pixels] | str], digests: Iterable[str], failures: dict[str, str]
) -> Iterator[tuple[str, Pixels]]:
    for digest, result in zip(digests, results, strict=True):
        if isinstance(result, str):
            failures[digest] = result
        else:
            yield result


def _digest_and_crop(record: ImageRecord, resize: int, crop: int) -> tuple[str, Pixels] | str:
    """Digest of the bytes that were decoded, and the crop; or why there is none."""
    location = record.location
    try:
        content = location.content()
        pixels = decode(content, location.name, at_least=2 * resize)
        cropped = np.array(resize_and_crop(pixels, resize, crop))
    except DataError as error:
        return _reason(error, location.name)
    return hashlib.sha256(content).hexdigest(), cropped


def _reason(error: DataError, name: str) -> str:
    """What went wrong without the name, which stands beside it."""
    return str(error).removeprefix(f"{name}: ").removesuffix(".")
