"""The folder of a run: the files that are written to it, and reading them.

``labels.csv`` and ``labels.parquet`` have one line per image, ``classifier.safetensors`` classifies
new images, ``corrections.csv`` holds the labels that a person gave. ``run.json`` records the
provenance of everything and is written last, so that a folder with it holds a finished run.
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
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.regular_file import read_regular
from infoshot.features.extract import digest_images
from infoshot.images.folders import ImageFile, read_labels
from infoshot.labelling.decide import Decision, Example, ImageLabel, Request
from infoshot.labelling.exports import EXPORTS

CSV_COLUMNS = ("path", "label", "confidence", "runner_up", "margin", "status", "reason")
STATUSES = ("labelled", "unsure", "outlier", "unreadable")
_FORMAT = "infoshot.run/1"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run as its folder records it."""

    request: Request
    facts: Mapping[str, Any]
    examples: list[Example]
    labels: list[ImageLabel]
    digests: list[str]
    probabilities: list[list[float]]


def check_folder(out: Path, request: Request, *, force: bool) -> dict[str, str]:
    """Refuse a folder that holds something else; return the corrections of the same images."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    if not out.is_dir():
        raise DataError(f"{out}: a file, not a folder for results.")
    before = read_request(out)
    if force:
        same = before is not None and before.same_images(request)
        return read_corrections(out) if same else {}
    if before is None:
        names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
        own = {"labels.csv", "labels.parquet", "classifier.safetensors", "report.html", *EXPORTS}
        if names - own:
            raise DataError(f"{out}: contains other files; pass force=True to write there.")
        return {}
    corrections = read_corrections(out)
    if before != _as_stored(request):
        n = len(corrections)
        fate = "kept" if before.same_images(request) else "lost"
        noun = "correction" if n == 1 else "corrections"
        what = f"; its {n} {noun} will be {fate}" if n else ""
        raise DataError(f"{out}: contains another run; pass force=True to replace it{what}.")
    return corrections


def write_run(folder: Path, decision: Decision, warnings: Sequence[str], cache: Path) -> None:
    """Write everything except the report and the exports."""
    write_atomically(folder / "labels.csv", format_labels(decision.labels))
    write_atomically(folder / "labels.parquet", _parquet(decision))
    decision.classifier.save(folder / "classifier.safetensors")
    text = json.dumps(_facts(decision, warnings, cache), indent=1, allow_nan=False)
    write_atomically(folder / "run.json", text + "\n")


def format_labels(labels: Sequence[ImageLabel]) -> str:
    """Format labels as CSV."""
    return csv_text(CSV_COLUMNS, ([_cell(label, name) for name in CSV_COLUMNS] for label in labels))


def check_finished(folder: Path) -> None:
    """Raise ``DataError`` if a folder does not contain a finished run."""
    _read_facts(folder)


def read_request(folder: Path) -> Request | None:
    """Read the request of the run in this folder; ``None`` if there is no finished run."""
    if not (folder / "run.json").is_file():
        return None
    return Request(**_read_facts(folder)["request"])


def read_run(folder: Path) -> FinishedRun:
    """Read a finished run.

    Raises
    ------
    DataError
        If there is no finished run, or its files are damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    facts = _read_facts(folder)
    path = folder / "labels.parquet"
    try:
        columns = pq.read_table(pa.BufferReader(read_regular(path))).to_pydict()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: missing or damaged ({error}).") from error
    names = [field.name for field in dataclasses.fields(ImageLabel) if field.name != "file"]
    labels = [
        ImageLabel(file=Path(os.fsdecode(file)), **dict(zip(names, values, strict=True)))
        for file, values in zip(
            columns["file"], zip(*(columns[name] for name in names), strict=True), strict=True
        )
    ]
    examples = [
        Example(
            entry["label"],
            ImageFile(entry["path"], Path(entry["file"])),
            entry["sha256"],
            entry["given"],
        )
        for entry in facts["examples"]
    ]
    return FinishedRun(
        Request(**facts["request"]),
        facts,
        examples,
        labels,
        columns["sha256"],
        columns["probabilities"],
    )


def find_run_cache(classifier: Path) -> Path | None:
    """Return the cache folder of the run that a classifier belongs to, if it still exists."""
    folder = classifier if classifier.is_dir() else classifier.parent
    try:
        cache = Path(_read_facts(folder)["cache"])
    except (DataError, KeyError):
        return None
    return cache if cache.is_dir() else None


def read_corrections(folder: Path) -> dict[str, str]:
    """Read the labels that a person gave after the first run, by path."""
    path = folder / "corrections.csv"
    if not path.is_file():
        return {}
    return {row["path"]: row["label"] for row in read_csv(path, "path", "label")}


def write_corrections(folder: Path, corrections: Mapping[str, str]) -> None:
    """Write the labels that a person gave; no file if there are none."""
    if not corrections:
        (folder / "corrections.csv").unlink(missing_ok=True)
        return
    write_atomically(folder / "corrections.csv", csv_text(("path", "label"), corrections.items()))


def _as_stored(request: Request) -> Request:
    """Return a request as run.json gives it back: tuples in its settings become lists."""
    return Request(**json.loads(json.dumps(dataclasses.asdict(request))))


def _cell(label: ImageLabel, name: str) -> str:
    value = getattr(label, name)
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else f"{value:.4f}"


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    if not path.is_file():
        raise DataError(f"{folder}: does not contain a finished labelling run.")
    try:
        facts: dict[str, Any] = json.loads(read_regular(path))
        if facts["format"] != _FORMAT:
            raise KeyError("format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the description of a labelling run ({error!r}).") from error
    return facts


def _parquet(decision: Decision) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels = decision.labels
    columns: dict[str, Any] = {
        field.name: [getattr(label, field.name) for label in labels]
        for field in dataclasses.fields(ImageLabel)
    }
    columns["file"] = [os.fsencode(label.file.absolute()) for label in labels]
    columns["sha256"] = list(decision.digests)
    columns["outlier_score"] = decision.outlier_scores.tolist()
    columns["probabilities"] = decision.probabilities.tolist()
    table = pa.table(columns).replace_schema_metadata({"classes": json.dumps(decision.classes)})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _facts(decision: Decision, warnings: Sequence[str], cache: Path) -> dict[str, Any]:
    """Collect what run.json records."""
    statuses = Counter(label.status for label in decision.labels)
    counts = Counter(label.label for label in decision.labels if label.label)
    held_out, classifier = decision.held_out, decision.classifier
    estimate = held_out.estimate()
    return {
        "format": _FORMAT,
        "request": dataclasses.asdict(decision.request),
        "classes": {name: counts[name] for name in decision.classes},
        "counts": {
            "examples": len(decision.examples),
            "photos": len(decision.labels),
            **{status: statuses[status] for status in STATUSES},
        },
        "method": {
            "name": decision.request.method,
            "settings": dict(classifier.settings),
            "decided": decision.note,
        },
        "encoder": dict(classifier.encoder),
        "estimate": estimate
        and {
            "held_out": estimate.n_examples,
            "accuracy": estimate.accuracy,
            "low": estimate.low,
            "high": estimate.high,
        },
        "calibration": {"by_examples": held_out.enough, "exponent": classifier.exponent},
        "thresholds": {
            "confidence": classifier.threshold,
            "outlier_score": classifier.outlier_cutoff,
        },
        "warnings": list(warnings),
        "cache": str(cache.absolute()),
        "environment": environment(),
        "examples": [
            {
                "path": example.image.path,
                "file": str(example.image.file.absolute()),
                "label": example.label,
                "sha256": example.digest,
                "given": example.given,
            }
            for example in decision.examples
        ],
    }


def read_given(given: str | os.PathLike[str] | Mapping[str, str]) -> list[tuple[ImageFile, str]]:
    """Read the labels that a person gives, from a CSV file or a mapping of paths."""
    if not isinstance(given, Mapping):
        return read_labels(Path(given))
    pairs = [(str(path), str(label).strip()) for path, label in given.items()]
    corrections = [(ImageFile(path, Path(path)), label) for path, label in pairs if label]
    if not corrections:
        raise InvalidArgumentError("corrections must hold at least one label; got none.")
    return corrections


def apply_corrections(
    examples: Sequence[Example],
    images: Sequence[ImageFile],
    digests: Sequence[tuple[str, str]],
    corrections: Mapping[str, str],
) -> list[Example]:
    """Add corrected images to the examples; a corrected example changes its label."""
    place = {image.path: number for number, image in enumerate(images)}
    of_example = {example.image.path: number for number, example in enumerate(examples)}
    found, label_of = list(examples), dict[str, tuple[str, str]]()
    for path, label in corrections.items():
        number = place.get(path)
        if number is not None:
            digest, reason = digests[number]
            if reason:
                raise DataError(f"{path}: {reason}, so it cannot be an example.")
            other, other_path = label_of.setdefault(digest, (label, path))
            if other != label:
                raise DataError(
                    f"the same image is corrected to '{other}' and to '{label}': {other_path} and "
                    f"{path}."
                )
            found.append(Example(label, images[number], digest, given=True))
        elif path in of_example:
            found[of_example[path]] = dataclasses.replace(examples[of_example[path]], label=label)
        else:
            image = ImageFile(path, Path(path))
            ((digest, reason),) = digest_images([image.location], 1)
            if reason:
                raise DataError(f"{path}: not an image of this run, and not a readable file.")
            found.append(Example(label, image, digest, given=True))
    return found


def find_name(image: ImageFile, known: Sequence[ImageLabel | ImageFile]) -> str:
    """Return the path under which a run knows an image that a user names by path or by file.

    The absolute path if the run does not know it.
    """
    for own in known:
        if image.path == own.path:
            return own.path
    wanted = image.file.absolute()
    for own in known:
        if wanted == own.file.absolute():
            return own.path
    return str(wanted)
