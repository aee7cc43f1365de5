"""The folder of a run: what is written there, and how it is read again.

``labels.csv`` and ``labels.parquet`` have a line per photo, ``classifier.safetensors`` labels
newcomers, ``run.json`` says where all of it comes from and is written last, so that a folder with
it is a finished run. ``corrections.csv`` holds the labels that were given afterwards.
"""

import dataclasses
import io
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.core.atomic import write_atomically
from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.environment import environment
from infoshot.core.errors import DataError
from infoshot.images.folders import Found
from infoshot.labelling.decide import Example, Outcome, Request
from infoshot.labelling.photo import PhotoLabel

CSV_COLUMNS = ("path", "label", "confidence", "runner_up", "margin", "status", "reason")
STATUSES = ("labelled", "unsure", "outlier", "unreadable")
_FORMAT = "infoshot.run/1"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What a folder says of the run that made it."""

    request: Request
    facts: Mapping[str, Any]
    examples: list[Example]
    photos: list[PhotoLabel]
    digests: list[str]
    probabilities: list[list[float]]


def write_run(
    folder: Path, outcome: Outcome, warnings: Sequence[str], more: Mapping[str, Any]
) -> None:
    """Write everything but the report and the exports; ``more`` goes into run.json."""
    write_atomically(folder / "labels.csv", labels_csv(outcome.photos))
    write_atomically(folder / "labels.parquet", _parquet(outcome))
    outcome.classifier.save(folder / "classifier.safetensors")
    text = json.dumps(_facts(outcome, warnings, more), indent=1, allow_nan=False)
    write_atomically(folder / "run.json", text + "\n")


def labels_csv(photos: Sequence[PhotoLabel]) -> str:
    """Labels as a CSV file has them."""
    return csv_text(CSV_COLUMNS, ([_cell(photo, name) for name in CSV_COLUMNS] for photo in photos))


def read_request(folder: Path) -> Request | None:
    """What the run in this folder was asked for; ``None`` if there is no finished run."""
    if not (folder / "run.json").is_file():
        return None
    return Request(**_read_facts(folder)["request"])


def read_run(folder: Path) -> FinishedRun:
    """Read a finished run.

    Raises
    ------
    DataError
        If there is none, or its files are damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    facts = _read_facts(folder)
    path = folder / "labels.parquet"
    try:
        columns = pq.read_table(path).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: missing or damaged ({error}).") from error
    names = [field.name for field in dataclasses.fields(PhotoLabel) if field.name != "file"]
    photos = [
        PhotoLabel(file=Path(os.fsdecode(file)), **dict(zip(names, values, strict=True)))
        for file, values in zip(
            columns["file"], zip(*(columns[name] for name in names), strict=True), strict=True
        )
    ]
    examples = [
        Example(
            entry["label"],
            Found(entry["path"], Path(entry["file"])),
            entry["sha256"],
            entry["given"],
        )
        for entry in facts["examples"]
    ]
    return FinishedRun(
        Request(**facts["request"]),
        facts,
        examples,
        photos,
        columns["sha256"],
        columns["probabilities"],
    )


def cache_of_run(classifier: Path) -> Path | None:
    """Where the run that a classifier belongs to keeps its features, if that is still there."""
    folder = classifier if classifier.is_dir() else classifier.parent
    try:
        cache = Path(_read_facts(folder)["cache"])
    except (DataError, KeyError):
        return None
    return cache if cache.is_dir() else None


def read_corrections(folder: Path) -> dict[str, str]:
    """Labels that were given after the first run, by path."""
    path = folder / "corrections.csv"
    if not path.is_file():
        return {}
    return {row["path"]: row["label"] for row in read_csv(path, "path", "label")}


def write_corrections(folder: Path, corrections: Mapping[str, str]) -> None:
    """Keep the labels that were given; no file if there are none."""
    if not corrections:
        (folder / "corrections.csv").unlink(missing_ok=True)
        return
    write_atomically(folder / "corrections.csv", csv_text(("path", "label"), corrections.items()))


def _cell(photo: PhotoLabel, name: str) -> str:
    value = getattr(photo, name)
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else f"{value:.4f}"


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not path.is_file():
        raise DataError(f"{folder}: there is no finished run of 'infoshot label' in it.")
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise KeyError("format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not what 'infoshot label' writes ({error!r}).") from error
    return facts


def _parquet(outcome: Outcome) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    photos = outcome.photos
    columns: dict[str, Any] = {
        field.name: [getattr(photo, field.name) for photo in photos]
        for field in dataclasses.fields(PhotoLabel)
    }
    columns["file"] = [os.fsencode(photo.file.absolute()) for photo in photos]
    columns["sha256"] = list(outcome.digests)
    columns["outlier_score"] = outcome.outlier_scores.tolist()
    columns["probabilities"] = outcome.probabilities.tolist()
    table = pa.table(columns).replace_schema_metadata({"classes": json.dumps(outcome.classes)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _facts(outcome: Outcome, warnings: Sequence[str], more: Mapping[str, Any]) -> dict[str, Any]:
    """Where the labels come from, for people and machines."""
    held, statuses = outcome.held_out, Counter(photo.status for photo in outcome.photos)
    labels = Counter(photo.label for photo in outcome.photos if photo.label)
    share, low, high = held.accuracy()
    classifier = outcome.classifier
    return {
        "format": _FORMAT,
        "request": dataclasses.asdict(outcome.request),
        "classes": {name: labels[name] for name in outcome.classes},
        "counts": {
            "examples": len(outcome.examples),
            "photos": len(outcome.photos),
            **{status: statuses[status] for status in STATUSES},
        },
        "method": {
            "name": outcome.request.method,
            "settings": dict(classifier.settings),
            "decided": outcome.note,
        },
        "encoder": dict(classifier.encoder),
        "estimate": {"held_out": len(held), "accuracy": share, "low": low, "high": high}
        if len(held)
        else None,
        "calibration": {"by_examples": held.enough, "exponent": classifier.exponent},
        "thresholds": {
            "confidence": classifier.threshold,
            "outlier_score": classifier.farthest,
        },
        "warnings": list(warnings),
        **more,
        "environment": environment(),
        "examples": [
            {
                "path": example.image.path,
                "file": str(example.image.file.absolute()),
                "label": example.label,
                "sha256": example.digest,
                "given": example.given,
            }
            for example in outcome.examples
        ],
    }


def name_in_run(image: Found, known: Sequence[PhotoLabel | Found]) -> str:
    """What the run calls an image that a user names, as labels.csv has it or as a file.

    Its absolute path if the run does not know it.
    """
    for own in known:
        if image.path == own.path:
            return own.path
    wanted = image.file.absolute()
    for own in known:
        if wanted == own.file.absolute():
            return own.path
    return str(wanted)
