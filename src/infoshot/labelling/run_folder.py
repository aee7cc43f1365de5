"""A run as its folder records it: what is written, what is read back, and what may be replaced.

``labels.csv`` and ``labels.parquet`` have one line per image, ``classifier.safetensors`` classifies
new images, ``corrections.csv`` holds the labels that a person gave, and ``run.json`` records the
provenance of everything. These files and the report are replaced together.
"""

import dataclasses
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infoshot.core.csv_file import csv_text
from infoshot.core.environment import environment
from infoshot.core.errors import DataError
from infoshot.core.file_state import digest
from infoshot.core.label_names import NONE
from infoshot.core.parquet_file import ColumnKind, format_table, parse_table
from infoshot.core.spreadsheet import guard_rows
from infoshot.images.folders import ImageFile
from infoshot.labelling.corrections import Corrections, format_corrections, read_corrections
from infoshot.labelling.decide import Decision, Example, ImageLabel, Request
from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.prediction_sets import PredictionSets, join_names
from infoshot.labelling.run_files import (
    CLASSIFIER,
    CORRECTIONS,
    FACTS,
    FORMAT,
    LABELS,
    PARQUET,
    REPORT,
    RUN_FILES,
    RunFacts,
)
from infoshot.labelling.target import Target

CSV_COLUMNS = ("path", "label", "confidence", "runner_up", "margin", "status", "reason")
SETS = "classes"  # the last column, if there are prediction sets
_COLUMNS: Mapping[str, ColumnKind] = {  # of labels.parquet, as far as it is read back
    **dict.fromkeys(("path", "label", "runner_up", "status", "reason", "sha256"), "text"),
    "file": "bytes",
    **dict.fromkeys(("confidence", "margin", "outlier_score"), "number"),
    "probabilities": "numbers",
}
_STATUSES = ("labelled", "unsure", "outlier", "unreadable")
_DIGEST = re.compile("([0-9a-f]{64})?")


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run as its folder records it.

    ``probabilities`` and ``outlier_scores`` are arrays with a row per image, NaN where it cannot be
    read, as in :class:`infoshot.labelling.decide.Decision`.
    """

    request: Request
    facts: RunFacts
    examples: list[Example]
    dropped: list[Example]
    labels: list[ImageLabel]
    digests: list[str]
    probabilities: NDArray[np.float64]
    outlier_scores: NDArray[np.float64]


def check_folder(out: Path, request: Request, *, force: bool) -> Corrections | None:
    """Refuse a folder that holds something else.

    Returns
    -------
    The corrections of the same images; ``None`` if there is no run of the same images.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not out.is_dir():
        raise DataError(f"{out}: a file, not a folder for results.")
    facts = _read_facts(out)
    if facts is None:
        names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
        if not force and names - set(EXPORTS):  # an interrupted run leaves nothing else
            raise DataError(f"{out}: contains other files; pass force=True to write there.")
        return None
    before = Request(**facts["request"])
    corrections = read_corrections(out, facts)
    if force:
        return corrections if before.same_images(request) else None
    now, then = (dataclasses.asdict(each) for each in (_as_stored(request), before))
    if now != then:
        differing = ", ".join(name for name in now if now[name] != then[name])
        n = len(corrections.answers)
        fate = "kept" if before.same_images(request) else "lost"
        noun = "correction" if n == 1 else "corrections"
        what = f"; its {n} {noun} will be {fate}" if n else ""
        raise DataError(
            f"{out}: contains another run, with other values of {differing}; pass force=True to "
            f"replace it{what}."
        )
    return corrections


def write_run(
    folder: Path,
    decision: Decision,
    *,
    report: str,
    corrections: Corrections,
    warnings: Sequence[str],
    cache: Path,
    csv_safe: bool,
    text: Mapping[str, str] | None = None,
    statement: Mapping[str, Any] | None = None,
) -> None:
    """Write everything except the exports; a process that reads sees all of it or nothing.

    ``text`` is the provenance of the texts of classes, if there are any, and ``statement`` is what
    a finished review says about the accuracy.

    Raises
    ------
    DataError
        If it cannot be written; an earlier run is kept then.
    """
    files = {
        LABELS: format_labels(
            decision.labels, csv_safe=csv_safe, sets=decision.list_sets()
        ).encode(),
        PARQUET: _format_rows(decision),
        CLASSIFIER: decision.classifier.to_bytes(),
        REPORT: report.encode(errors="backslashreplace"),  # the encoder's folder may be any bytes
    }
    if corrections.answers:
        sheet = format_corrections(corrections.answers, csv_safe=csv_safe)
        files[CORRECTIONS] = sheet.encode()
    facts = {
        **_facts(decision, warnings, cache),
        **({"text": dict(text)} if text else {}),
        "csv_safe": csv_safe,
        "review": {
            "n_entries": corrections.n_entries,
            **({"statement": dict(statement)} if statement else {}),
        },
        "files": {name: digest(content) for name, content in files.items()},
    }
    record = json.dumps(facts, indent=1, allow_nan=False) + "\n"
    RUN_FILES.write(folder, {**files, FACTS: record.encode()})


def format_labels(
    labels: Sequence[ImageLabel],
    *,
    csv_safe: bool = False,
    sets: Sequence[Sequence[str]] | None = None,
) -> str:
    """Format labels as CSV, with a column for the prediction sets if there are any."""
    rows = [[_cell(label, name) for name in CSV_COLUMNS] for label in labels]
    if sets is None:
        return csv_text(CSV_COLUMNS, guard_rows(rows, csv_safe))
    rows = [[*row, join_names(names)] for row, names in zip(rows, sets, strict=True)]
    return csv_text((*CSV_COLUMNS, SETS), guard_rows(rows, csv_safe))


def check_finished(folder: Path) -> None:
    """Raise ``DataError`` if a folder does not contain a finished run."""
    RUN_FILES.read(folder)


def read_run(folder: Path) -> FinishedRun:
    """Read a finished run.

    Raises
    ------
    DataError
        If there is no finished run, or its files are damaged.
    """
    facts, files = RUN_FILES.read(folder, PARQUET)
    try:
        rows = _parse_rows(files[PARQUET], facts)
    except ValueError as error:
        raise DataError(
            f"{folder / PARQUET}: damaged, or not the labels of this run ({error})."
        ) from error
    examples = [
        Example(
            entry["label"],
            ImageFile(entry["path"], Path(entry["file"])),
            entry["sha256"],
            entry["given"],
            entry.get("original", ""),
        )
        for entry in facts["examples"]
    ]
    request = Request(**facts["request"])
    return FinishedRun(
        request,
        facts,
        [example for example in examples if example.label != NONE],
        [example for example in examples if example.label == NONE],
        _make_labels(rows),
        rows["sha256"],
        rows["probabilities"],
        rows["outlier_score"],
    )


def find_run_cache(classifier: Path) -> Path | None:
    """Return the cache folder of the run that a classifier belongs to, if it still exists."""
    facts = _find_facts(classifier)
    cache = Path(facts["cache"]) if facts else None
    return cache if cache and cache.is_dir() else None


def find_run_images(classifier: Path) -> list[Path]:
    """Return the examples and the photos of the run that a classifier belongs to."""
    facts = _find_facts(classifier)
    places = (facts["request"]["examples"], facts["request"]["photos"]) if facts else ()
    return [Path(place) for place in places if place is not None]


def _find_facts(classifier: Path) -> RunFacts | None:
    """Read run.json beside a classifier; ``None`` if it belongs to no run."""
    try:
        return _read_facts(classifier if classifier.is_dir() else classifier.parent)
    except DataError:
        return None


def _read_facts(folder: Path) -> RunFacts | None:
    """Read run.json; ``None`` if there is no finished run."""
    text = RUN_FILES.read_file(folder, FACTS)
    return None if text is None else RUN_FILES.parse(text, folder / FACTS)


def _format_rows(decision: Decision) -> bytes:
    """Format labels.parquet: labels with probabilities, outlier scores and digests."""
    labels = decision.labels
    columns: dict[str, Any] = {
        field.name: [getattr(label, field.name) for label in labels]
        for field in dataclasses.fields(ImageLabel)
    }
    columns["file"] = [os.fsencode(label.file.absolute()) for label in labels]
    columns["sha256"] = list(decision.digests)
    columns["outlier_score"] = decision.outlier_scores.tolist()
    columns["probabilities"] = decision.probabilities.tolist()
    if (sets := decision.list_sets()) is not None:
        columns[SETS] = sets
    return format_table(columns, {"classes": json.dumps(decision.classes)})


def _parse_rows(content: bytes, facts: RunFacts) -> dict[str, Any]:
    """Parse the columns of labels.parquet; raise ``ValueError`` if they do not fit run.json."""
    classes, n_images = list(facts["classes"]), facts["counts"].get("photos", -1)
    columns = parse_table(content, _COLUMNS, n_rows=n_images, width=len(classes))
    allowed = {"status": {*_STATUSES}, "label": {"", *classes}, "runner_up": {"", *classes}}
    for name, values in allowed.items():
        if wrong := set(columns[name]) - values:
            raise ValueError(f"the column '{name}' has the value {min(wrong)!r:.60}")
    if not all(_DIGEST.fullmatch(text) for text in columns["sha256"]):
        raise ValueError("the column 'sha256' has a value that is not a digest")
    for name in ("confidence", "margin", "probabilities"):
        _check_shares(name, columns[name])
    return columns


def _check_shares(name: str, values: NDArray[np.float64]) -> None:
    """Check numbers between 0 and 1, with a margin for rounding; NaN is allowed."""
    wrong = (values < -0.001) | (values > 1.001)
    if wrong.any():
        raise ValueError(f"the column '{name}' has the value {values[wrong][0]}")


def _make_labels(columns: Mapping[str, Any]) -> list[ImageLabel]:
    """Make the labels of the images from the columns of labels.parquet."""
    values = [
        values.tolist() if isinstance(values := columns[field.name], np.ndarray) else values
        for field in dataclasses.fields(ImageLabel)
    ]
    return [
        ImageLabel(path, Path(os.fsdecode(file)), *others)
        for path, file, *others in zip(*values, strict=True)
    ]


def _as_stored(request: Request) -> Request:
    """Return a request as run.json gives it back: tuples in its settings become lists."""
    return Request(**json.loads(json.dumps(dataclasses.asdict(request))))


def _cell(label: ImageLabel, name: str) -> str:
    value = getattr(label, name)
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else f"{value:.4f}"


def _facts(decision: Decision, warnings: Sequence[str], cache: Path) -> dict[str, Any]:
    """Collect what run.json records."""
    statuses = Counter(label.status for label in decision.labels)
    counts = Counter(label.label for label in decision.labels if label.label)
    held_out, classifier = decision.held_out, decision.classifier
    estimate = held_out.estimate()
    return {
        "format": FORMAT,
        "request": dataclasses.asdict(decision.request),
        "classes": {name: counts[name] for name in decision.classes},
        "counts": {
            "examples": len(decision.examples),
            "photos": len(decision.labels),
            **{status: statuses[status] for status in _STATUSES},
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
        **({"coverage": _coverage_facts(decision.sets)} if decision.sets else {}),
        **({"target": _target_facts(decision.target)} if decision.target else {}),
        "warnings": list(warnings),
        "cache": str(cache.absolute()),
        "environment": environment(),
        "examples": _example_facts(decision),
    }


def _coverage_facts(sets: PredictionSets) -> dict[str, Any]:
    """Collect what run.json records of the prediction sets."""
    return {
        "asked": sets.coverage,
        "held_out": sets.evidence.n_held_out,
        "audited": sets.evidence.n_audited,
        "needed": sets.n_needed,
        "least_probability": sets.least,
        "mean_size": sets.mean_size,
        "sizes": {str(size): n for size, n in sets.count_sizes().items()},
    }


def _target_facts(target: Target) -> dict[str, Any]:
    """Collect what run.json records of the labels that reach the target."""
    found = target.n_images > 0
    return {
        "asked": target.rate,
        "chosen": target.n_images,
        "candidates": target.n_candidates,
        "expected": target.expected if found else None,
        "certainty": target.certainty if found else None,
        "held_out": target.evidence.n_held_out,
        "audited": target.evidence.n_audited,
    }


def _example_facts(decision: Decision) -> list[dict[str, Any]]:
    """Collect what run.json records of the examples, also of those that were dropped."""
    guesses = {example.image.path: guess for example, guess in decision.find_odd_examples()}
    facts = []
    for example in (*decision.examples, *decision.dropped):
        entry = {
            "path": example.image.path,
            "file": str(example.image.file.absolute()),
            "label": example.label,
            "sha256": example.digest,
            "given": example.given,
        }
        if example.original:
            entry["original"] = example.original
        if example.image.path in guesses:
            entry["looks_like"] = guesses[example.image.path]
        facts.append(entry)
    return facts
