"""Solve a finished run again with the answers of a person as examples."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from infoshot.backbones import Encoder, EncoderLike, open_encoder
from infoshot.backbones.external.text_tower import TextTower, open_text_tower
from infoshot.core.environment import default_device
from infoshot.core.progress import Progress, ProgressLike, open_progress
from infoshot.core.types import AnyPath
from infoshot.features.cache import FeatureMemory
from infoshot.features.extract import Extraction, check_same_encoder
from infoshot.images.folders import ImageFile
from infoshot.labelling.api import Job, LabelResult, Place, check_exports
from infoshot.labelling.corrections import (
    Corrections,
    apply_corrections,
    match_corrections,
    read_corrections,
)
from infoshot.labelling.decide import CORRECTED, Decision, ImageLabel
from infoshot.labelling.run_files import RUN_FILES
from infoshot.labelling.run_folder import FinishedRun, check_finished, read_run
from infoshot.labelling.text_prototypes import NameEncoder, check_same_tower


def add_labels(
    run: AnyPath,
    corrections: AnyPath | Mapping[str, str],
    *,
    backbone: EncoderLike | None = None,
    export: str | Sequence[str] = (),
    device: str | None = None,
    csv_safe: bool = False,
    progress: ProgressLike = None,
) -> LabelResult:
    """Add corrected labels to a finished run as examples, and solve it again.

    Parameters
    ----------
    run
        Folder of the run.
    corrections
        A CSV file with the columns ``path`` and ``label``, or labels by path. Paths are those of
        labels.csv, or files. The label ``(none)`` means none of the classes. Corrections replace
        those of an earlier call.
    backbone
        The encoder of the run, as in :func:`predict`; used only for images that are not cached.
    export, device, csv_safe, progress
        As in :func:`label`. A run that was written with ``csv_safe`` stays so.

    Returns
    -------
    The new labels, also written to the folder of the run.

    Raises
    ------
    DataError
        If there is no finished run, a correction names an image that cannot be read, an image has
        two labels, or a label differs from a class only in case, spaces or Unicode form.

    Examples
    --------
    >>> result = add_labels("run", {"photos/1.png": "dog"})
    >>> result.labels["photos/1.png"]
    'dog'
    """
    exports = check_exports(export)
    with open_progress(progress) as bar, _open_run(Path(run)) as before:
        job = _make_job(Path(run), before, backbone, exports, device, csv_safe, bar)
        earlier = read_corrections(Path(run), before.facts)
        known: list[ImageLabel | ImageFile] = [*before.labels]
        known += [example.image for example in (*before.examples, *before.dropped)]
        csv_safe = before.facts.get("csv_safe", False)
        new = match_corrections(corrections, known, before.facts["classes"], csv_safe=csv_safe)
        every = Corrections({**earlier.answers, **new}, earlier.n_entries)
        return job.write(_decide(job, before, every), every)


def solve_again(
    run: Path,
    *,
    statement: Mapping[str, Any] | None = None,
    export: Sequence[str] = (),
    device: str | None = None,
    memory: FeatureMemory | None = None,
) -> tuple[Decision, int]:
    """Solve a run again with everything that the log of its review holds, and write it.

    Parameters
    ----------
    run
        Folder of the run.
    statement
        What a finished review says about the accuracy. If it holds for a part of the images only,
        the others are reported as unsure.
    export, device
        As in :func:`infoshot.label`.
    memory
        Keeps features for the next call.

    Returns
    -------
    The new labels with what they are based on, and the number of the last entry in them.
    """
    exports = check_exports(export)
    with open_progress(None) as bar, _open_run(run) as before:
        job = _make_job(run, before, None, exports, device, False, bar)
        job = dataclasses.replace(job, memory=memory)
        corrections = read_corrections(run, before.facts)
        decision = _decide(job, before, corrections)
        if part := (statement or {}).get("part"):
            decision = _mark_unsure(decision, part["threshold"])
        job.write(decision, corrections, statement=statement)
    return decision, corrections.n_entries


@contextmanager
def _open_run(run: Path) -> Iterator[FinishedRun]:
    """Read a run that nobody else changes meanwhile."""
    check_finished(run)
    with RUN_FILES.open_writer(run):
        yield read_run(run)


def _make_job(
    run: Path,
    before: FinishedRun,
    backbone: EncoderLike | None,
    exports: tuple[str, ...],
    device: str | None,
    csv_safe: bool,
    progress: Progress,
) -> Job:
    facts = before.facts
    csv_safe = csv_safe or facts.get("csv_safe", False)
    provenance = cast("dict[str, str]", facts["encoder"])
    # Opened only if the features of an image are not cached any more.
    encoder = partial(_reopen_encoder, backbone or before.request.backbone, provenance)
    names = None
    if "text" in facts:
        of_text = cast("dict[str, str]", facts["text"])
        names = NameEncoder(of_text, partial(_reopen_tower, encoder, of_text))
    place = Place(run, Path(facts["cache"]), device or default_device(), exports, csv_safe)
    return Job(before.request, place, provenance, encoder, progress, names=names)


def _decide(job: Job, before: FinishedRun, corrections: Corrections) -> Decision:
    """Make examples of all corrections, and solve."""
    images = [ImageFile(image.path, image.file) for image in before.labels]
    digests = [
        (digest, image.reason if image.status == "unreadable" else "")
        for digest, image in zip(before.digests, before.labels, strict=True)
    ]
    own = [
        dataclasses.replace(example, label=example.original or example.label, original="")
        for example in (*before.examples, *before.dropped)
        if not example.given
    ]
    known = apply_corrections(own, images, digests, corrections.answers)
    return job.decide(known, images, digests)[0]


def _mark_unsure(decision: Decision, threshold: float) -> Decision:
    """Report labels below a confidence as unsure, except those that a person gave."""
    reason = f"confidence below {threshold:.4g}, outside the accepted part"
    labels = [
        dataclasses.replace(label, status="unsure", reason=reason)
        if label.status == "labelled" and label.reason != CORRECTED and label.confidence < threshold
        else label
        for label in decision.labels
    ]
    return dataclasses.replace(decision, labels=labels)


def _reopen_encoder(backbone: EncoderLike, provenance: Mapping[str, str]) -> Encoder:
    """Open the encoder of an earlier run; raise if it computes other features today."""
    encoder = open_encoder(backbone)
    check_same_encoder(encoder, Extraction(), provenance)
    return encoder


def _reopen_tower(encoder: Callable[[], Encoder], provenance: Mapping[str, str]) -> TextTower:
    """Open the text tower of an earlier run; raise if it computes other features today."""
    images = encoder()
    return check_same_tower(images.backbone_name, open_text_tower(images), provenance)
