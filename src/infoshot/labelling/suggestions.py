"""Suggest which images of a run a person should label next."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from infoshot.core import checks
from infoshot.core.csv_file import csv_text
from infoshot.core.errors import DataError
from infoshot.core.outputs import write_output
from infoshot.core.spreadsheet import guard_rows
from infoshot.core.types import AnyPath
from infoshot.features.cache import FeatureCache, FeatureMemory
from infoshot.labelling.decide import CORRECTED, ImageLabel, choose_suggestions
from infoshot.labelling.output_checks import SUGGESTION_COLUMNS, choose_sheet
from infoshot.labelling.run_folder import FinishedRun, read_run


@dataclass(frozen=True)
class Suggestions:
    """The images whose label would help most, and the CSV file that lists them.

    ``note`` says why it is another file than the one that was asked for; empty if it is not.

    Examples
    --------
    >>> from infoshot import suggest
    >>> found = suggest("run", n=2)
    >>> len(found.images), found.sheet.as_posix()
    (2, 'run/suggestions.csv')
    """

    images: list[ImageLabel]
    sheet: Path
    note: str = ""


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
        pass it to :func:`add_labels`. A file that holds anything but a sheet without answers is
        kept: the sheet is then written beside it, with a number in its name.
    csv_safe
        As in :func:`label`, whose choice is kept.

    Returns
    -------
    The images, the most useful first, and the file.

    Raises
    ------
    DataError
        If there is no finished run, its features are not cached any more, or the file is one of
        the run's own.

    Examples
    --------
    >>> len(suggest("run", n=5).images)
    5
    """
    checks.at_least("n", n, 1)
    finished = read_run(Path(run))
    sheet, note = choose_sheet(Path(out) if out else Path(run) / "suggestions.csv")
    chosen = choose_next(finished, *read_cached_features(finished), n)
    images = [finished.labels[number] for number in chosen]
    rows = [(i.path, "", i.label, i.runner_up, f"{i.confidence:.4f}") for i in images]
    csv_safe = csv_safe or finished.facts.get("csv_safe", False)
    write_output(sheet, csv_text(SUGGESTION_COLUMNS, guard_rows(rows, csv_safe)))
    return Suggestions(images, sheet, note)


def choose_next(run: FinishedRun, examples: Tensor, features: Tensor, n: int) -> list[int]:
    """Choose images of a run to label next, among those without an answer of a person."""
    probabilities = torch.tensor(run.probabilities, dtype=torch.float32)
    answered = torch.tensor([image.reason == CORRECTED for image in run.labels])
    probabilities[answered] = torch.nan
    return choose_suggestions(features, probabilities, examples, n)


def read_cached_features(
    run: FinishedRun, memory: FeatureMemory | None = None
) -> tuple[Tensor, Tensor]:
    """Read the features of the examples and of the images of a run, NaN where unreadable.

    ``memory`` keeps them for others.

    Raises
    ------
    DataError
        If they are not cached any more.
    """
    provenance = cast("dict[str, str]", run.facts["encoder"])
    cache = FeatureCache(Path(run.facts["cache"]), provenance, memory=memory)
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
