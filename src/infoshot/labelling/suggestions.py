"""Suggest which images of a run a person should label next."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.core.csv_file import csv_text, read_csv
from infoshot.core.errors import DataError
from infoshot.core.spreadsheet import guard_rows
from infoshot.core.types import AnyPath
from infoshot.features.cache import FeatureCache
from infoshot.labelling.decide import ImageLabel, choose_suggestions
from infoshot.labelling.run_folder import FinishedRun, read_run


@dataclass(frozen=True)
class Suggestions:
    """The images whose label would help most, and the CSV file that lists them."""

    images: list[ImageLabel]
    sheet: Path


def suggest(
    run: AnyPath, *, n: int = 20, out: AnyPath | None = None, csv_safe: bool = False
) -> Suggestions:
    """List the images of a run whose label would help most: doubtful, and unlike each other.

    Parameters
    ----------
    run
        Folder of a finished run.
    n
        How many.
    out
        CSV file to write; by default suggestions.csv in the run. Fill in its column ``label`` and
        pass it to :func:`add_labels`.
    csv_safe
        As in :func:`label`, whose choice is kept.

    Returns
    -------
    The images, the most useful first, and the file.

    Raises
    ------
    DataError
        If there is no finished run, its features are not cached any more, or the file has labels
        already.

    Examples
    --------
    >>> suggest("run", n=5).images[0].path  # doctest: +SKIP
    'photos/17.jpg'
    """
    checks.at_least("n", n, 1)
    finished = read_run(Path(run))
    sheet = Path(out) if out else Path(run) / "suggestions.csv"
    if _has_labels(sheet):
        raise DataError(
            f"{sheet}: has labels already; add them to the run, or choose another file."
        )
    check_outputs([], [sheet])
    examples, features = _read_cached_features(finished)
    probabilities = torch.tensor(finished.probabilities, dtype=torch.float32)
    chosen = choose_suggestions(features, probabilities, examples, n)
    images = [finished.labels[number] for number in chosen]
    header = ("path", "label", "guess", "runner_up", "confidence")
    rows = [(i.path, "", i.label, i.runner_up, f"{i.confidence:.4f}") for i in images]
    csv_safe = csv_safe or finished.facts.get("csv_safe", False)
    write_atomically(sheet, csv_text(header, guard_rows(rows, csv_safe)))
    return Suggestions(images, sheet)


def _has_labels(sheet: Path) -> bool:
    try:
        return sheet.exists() and any(row["label"].strip() for row in read_csv(sheet, "label"))
    except DataError:
        return False


def _read_cached_features(run: FinishedRun) -> tuple[Tensor, Tensor]:
    """Read the features of the examples and of the images of a run, NaN where unreadable."""
    cache = FeatureCache(Path(run.facts["cache"]), cast("dict[str, str]", run.facts["encoder"]))
    digests = [*(example.digest for example in run.examples), *run.digests]
    known = cache.read(digests)
    readable = [True] * len(run.examples) + [image.status != "unreadable" for image in run.labels]
    if any(need and digest not in known for need, digest in zip(readable, digests, strict=True)):
        raise DataError(
            f"{cache.folder}: the features of this run are not cached any more; label the images "
            "again to compute them."
        )
    nothing = torch.full_like(next(iter(known.values())), torch.nan)
    features = torch.stack([known.get(digest, nothing) for digest in digests])
    return features[: len(run.examples)], features[len(run.examples) :]
