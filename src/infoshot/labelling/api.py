"""A labelling from folder to folder: find, check, encode, solve, write."""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from infoshot.backbones.checkpoints import Checkpoint
from infoshot.backbones.encoders import open_encoder
from infoshot.core.atomic import make_folder, sole_writer, write_atomically
from infoshot.core.errors import DataError, InfoshotError
from infoshot.features.encode import Encoded, digest_files, encode_files, encoder_facts
from infoshot.features.extract import Extraction
from infoshot.features.store import FeatureStore
from infoshot.images.folders import Found, find_examples, find_photos, read_labels
from infoshot.images.workers import decode_workers
from infoshot.labelling.decide import Example, Outcome, Request, label_photos
from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.label_report import label_report
from infoshot.labelling.photo import PhotoLabel
from infoshot.labelling.run_folder import (
    FinishedRun,
    name_in_run,
    read_corrections,
    read_request,
    read_run,
    write_corrections,
    write_run,
)
from infoshot.labelling.suggest import worth_labelling
from infoshot.labelling.warn import warnings_of
from infoshot.version import __version__

_WORTH = 12
Looked = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Watcher:
    """Who wants to know how far it is: told of each phase, and of images as they are seen."""

    phase: Callable[[str, int], None] = lambda name, total: None
    advance: Callable[[int], None] = lambda n_done: None


NOBODY = Watcher()


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """Where a run keeps things, and what it computes on."""

    out: Path
    cache: Path
    device: str = "cpu"
    exports: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Finished:
    """A labelling with what is said about it."""

    outcome: Outcome
    warnings: list[str]
    images_per_second: float | None
    exports: list[str]


def default_cache() -> Path:
    """Where features are kept between runs: ``INFOSHOT_CACHE``, or the user's cache folder."""
    if given := os.environ.get("INFOSHOT_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "infoshot"


def label_folder(
    request: Request, place: Workplace, *, force: bool = False, watcher: Watcher = NOBODY
) -> Finished:
    """Label a pile of photos from examples, and write all results into a folder.

    Raises
    ------
    DataError, InvalidArgumentError
        Before any work if something does not fit; an earlier run stays as it was.
    """
    labelled = find_examples(Path(request.examples))
    request.chosen(sorted({label for label, _ in labelled}))
    corrections = _corrections_of_same_run(place.out, request, force=force)
    inside = [place.out, Path(request.examples), *(image.file for _, image in labelled)]
    photos = find_photos(Path(request.photos), without=inside)
    watcher.phase("opening the encoder", 0)
    checkpoint = open_encoder(request.backbone)
    how = Extraction(device=place.device)
    how.sizes(checkpoint)
    watcher.phase("reading", 0)
    examples = _checked_examples(labelled)
    make_folder(place.out)
    with sole_writer(place.out):
        looked = digest_files(photos, decode_workers())
        examples = _with_corrections(examples, photos, looked, corrections)
        facts = encoder_facts(checkpoint, how)
        write_corrections(place.out, corrections)
        work = _Work(request, place, facts, lambda: checkpoint, watcher)
        return work.finish(examples, photos, looked)


def add_corrections(
    run: Path,
    given: Path,
    *,
    device: str = "cpu",
    exports: Sequence[str] = (),
    watcher: Watcher = NOBODY,
) -> Finished:
    """Take corrected labels into a finished run as examples, and solve it again.

    Raises
    ------
    DataError
        If there is no finished run, or a correction names no photo.
    """
    before = read_run(run)
    earlier = read_corrections(run)
    known: list[PhotoLabel | Found] = [*before.photos]
    known += [example.image for example in before.examples]
    new = {name_in_run(image, known): label for image, label in read_labels(given)}
    corrections = {**earlier, **new}
    photos = [Found(photo.path, photo.file) for photo in before.photos]
    looked = [
        (digest, photo.reason if photo.status == "unreadable" else "")
        for digest, photo in zip(before.digests, before.photos, strict=True)
    ]
    own = [example for example in before.examples if not example.given]
    examples = _with_corrections(own, photos, looked, corrections)
    place = Workplace(out=run, cache=Path(before.facts["cache"]), device=device, exports=exports)
    facts = before.facts["encoder"]
    # Not even opened if the features of all images are still there.
    encoder = partial(_same_encoder, before.request.backbone, facts)
    with sole_writer(run):
        write_corrections(run, corrections)  # first, so that a killed run takes them in next time
        try:
            return _Work(before.request, place, facts, encoder, watcher).finish(
                examples, photos, looked
            )
        except InfoshotError:
            write_corrections(run, earlier)
            raise


def known_features(run: FinishedRun) -> tuple[Tensor, Tensor]:
    """Features of the examples and of the photos of a finished run, NaN where there are none.

    Raises
    ------
    DataError
        If the cache does not hold them any more.
    """
    store = FeatureStore(Path(run.facts["cache"]), run.facts["encoder"])
    digests = [*(example.digest for example in run.examples), *run.digests]
    known = store.read(digests)
    unknown = [photo.status != "unreadable" for photo in run.photos]
    needed = [True] * len(run.examples) + unknown
    if any(need and digest not in known for need, digest in zip(needed, digests, strict=True)):
        raise DataError(
            f"{store.folder}: the features of this run are not kept any more; the command that "
            "made the run makes them again."
        )
    nothing = torch.full_like(next(iter(known.values())), torch.nan)
    features = torch.stack([known.get(digest, nothing) for digest in digests])
    return features[: len(run.examples)], features[len(run.examples) :]


def _corrections_of_same_run(out: Path, request: Request, *, force: bool) -> dict[str, str]:
    """Labels given to this run earlier; refuse a folder that holds something else.

    Who asks for the same images in another way keeps what was given.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    if not out.is_dir():
        raise DataError(f"{out}: is a file, not a folder for results.")
    before = read_request(out)
    if force:
        same = before is not None and before.same_images(request)
        return read_corrections(out) if same else {}
    if before is None:
        strange = [path.name for path in out.iterdir() if not path.name.startswith(".")]
        known = {"labels.csv", "labels.parquet", "classifier.safetensors", "report.html", *EXPORTS}
        if set(strange) - known:
            raise DataError(f"{out}: holds other files; --force writes there all the same.")
        return {}
    corrections = read_corrections(out)
    if before != request:
        n = len(corrections)
        fate = "stay" if before.same_images(request) else "are lost"
        given = f", and its {n} corrections {fate}" if n else ""
        raise DataError(f"{out}: holds another run; --force replaces it{given}.")
    return corrections


def _checked_examples(labelled: Sequence[tuple[str, Found]]) -> list[Example]:
    """Examples with their digests; every class has one that can be read, and none is in two."""
    looked = digest_files([image for _, image in labelled], decode_workers())
    examples, label_of = [], dict[str, tuple[str, Found]]()
    for (label, image), (digest, reason) in zip(labelled, looked, strict=True):
        if reason:
            raise DataError(f"{image.path}: this example {_as_clause(reason)}.")
        if digest not in label_of:
            label_of[digest] = (label, image)
            examples.append(Example(label, image, digest))
            continue
        other = label_of[digest]
        if other[0] != label:  # twice in one class it counts once
            raise DataError(
                f"the same image is an example of '{other[0]}' and of '{label}': {other[1].path} "
                f"and {image.path}."
            )
    return examples


def _as_clause(reason: str) -> str:
    return reason if reason.startswith("cannot") else f"cannot be used ({reason})"


def _with_corrections(
    examples: Sequence[Example],
    photos: Sequence[Found],
    looked: Looked,
    corrections: Mapping[str, str],
) -> list[Example]:
    """Examples and what was given afterwards; a corrected example changes its label."""
    place = {photo.path: number for number, photo in enumerate(photos)}
    of_example = {example.image.path: number for number, example in enumerate(examples)}
    found = list(examples)
    for path, label in corrections.items():
        number = place.get(path)
        if number is not None:
            digest, reason = looked[number]
            if reason:
                raise DataError(f"{path}: {reason}, so it cannot be an example.")
            found.append(Example(label, photos[number], digest, given=True))
        elif path in of_example:
            found[of_example[path]] = dataclasses.replace(examples[of_example[path]], label=label)
        else:
            ((digest, reason),) = digest_files([Found(path, Path(path))], 1)
            if reason:
                raise DataError(f"{path}: no photo of this run, and no file that can be read.")
            found.append(Example(label, Found(path, Path(path)), digest, given=True))
    return found


def _same_encoder(backbone: str, facts: Mapping[str, str]) -> Checkpoint:
    checkpoint = open_encoder(backbone)
    if checkpoint.digest != facts["weights_sha256"]:
        raise DataError(f"the encoder '{backbone}' has other weights than the run was made with.")
    return checkpoint


@dataclass(frozen=True, eq=False)
class _Work:
    """What is the same for a first run and for one with corrections."""

    request: Request
    place: Workplace
    facts: Mapping[str, str]
    encoder: Callable[[], Checkpoint]
    watcher: Watcher

    def finish(
        self, examples: Sequence[Example], photos: Sequence[Found], looked: Looked
    ) -> Finished:
        """Encode what is new, solve, and write."""
        files = [*(example.image for example in examples), *photos]
        known = [*((example.digest, "") for example in examples), *looked]
        encoded, speed = self._encoded(files, known)
        n_examples = len(examples)
        for example, reason in zip(examples, encoded.reasons[:n_examples], strict=True):
            if reason:
                raise DataError(f"{example.image.path}: this example {_as_clause(reason)}.")
        self.watcher.phase("solving", 0)
        pile = Encoded(
            encoded.features[n_examples:],
            encoded.digests[n_examples:],
            encoded.reasons[n_examples:],
        )
        outcome = label_photos(
            self.request, examples, encoded.features[:n_examples], photos, pile, self.facts
        )
        self.watcher.phase("writing", 0)
        warnings = warnings_of(outcome)
        return Finished(outcome, warnings, speed, self._write(outcome, warnings))

    def _encoded(self, files: Sequence[Found], known: Looked) -> tuple[Encoded, float | None]:
        """Features, and how many images a second the encoder saw."""
        store = FeatureStore(self.place.cache, self.facts)
        how = Extraction(device=self.place.device)
        start, n_new = time.perf_counter(), 0

        def begin(n: int) -> None:
            nonlocal n_new, start
            n_new, start = n, time.perf_counter()
            self.watcher.phase("encoding", n)

        advance = self.watcher.advance
        encoded = encode_files(
            files, known, self.encoder, how, store, on_start=begin, on_progress=advance
        )
        return encoded, n_new / (time.perf_counter() - start) if n_new else None

    def _write(self, outcome: Outcome, warnings: Sequence[str]) -> list[str]:
        """Write all results; return the names of the exports."""
        out = self.place.out
        worth = worth_labelling(outcome.features, outcome.probabilities, outcome.z_sup, _WORTH)
        write_atomically(out / "report.html", label_report(outcome, warnings, worth))
        labeller = f"infoshot-{__version__}-{self.request.method}"
        # Also those of an earlier run there, which would go on telling the old labels.
        exports = [name for name in EXPORTS if name in self.place.exports or (out / name).exists()]
        for name in exports:
            EXPORTS[name](outcome.photos, outcome.classes, out / name, labeller)
        write_run(out, outcome, warnings, {"cache": str(self.place.cache.absolute())})
        return exports
