"""The items of a review as arrays: the photos of a run, then its own examples."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infoshot.core.label_names import NONE
from infoshot.labelling.calibrate import Estimate
from infoshot.labelling.decide import CORRECTED, Example
from infoshot.labelling.run_files import RunFacts
from infoshot.labelling.run_folder import FinishedRun, read_run

STATUSES = ("labelled", "unsure", "outlier", "unreadable")
NO_CLASS = -1


@dataclass(frozen=True, eq=False)
class Pool:
    """One state of a run. Arrays have a row per photo, lists an entry per item.

    Parameters
    ----------
    facts
        What run.json holds.
    classes
        The classes of the run.
    paths, files, digests
        Of every item: as labels.csv names it, where it is, and its sha256.
    examples
        The run's own examples, in the order of the last items.
    looks_like
        The class that a held-out example was classified as, by its path.
    probabilities
        Calibrated probabilities of the classes; NaN where there are none.
    predicted
        Number of the class that the solver chose; ``NO_CLASS`` where it chose none.
    confidence, margin, outlier_score
        Of the solver's label; NaN where there is none.
    status
        Number in ``STATUSES``.
    reasons
        Why a photo has its status.
    withheld
        Whether the run gives a photo no label although the solver chose a class.
    """

    facts: RunFacts
    classes: tuple[str, ...]
    paths: list[str]
    files: list[Path]
    digests: list[str]
    examples: list[Example]
    looks_like: Mapping[str, str]
    probabilities: NDArray[np.float32]
    predicted: NDArray[np.int32]
    confidence: NDArray[np.float32]
    margin: NDArray[np.float32]
    outlier_score: NDArray[np.float32]
    status: NDArray[np.int8]
    reasons: list[str]
    withheld: NDArray[np.bool_]

    @property
    def n_photos(self) -> int:
        """How many items are photos."""
        return len(self.predicted)

    @property
    def n_items(self) -> int:
        """Photos and examples."""
        return len(self.paths)

    @property
    def n_entries(self) -> int:
        """How many entries of the log the labels contain."""
        return self.facts["review"]["n_entries"] if "review" in self.facts else 0

    @property
    def has_fixed_classes(self) -> bool:
        """Whether a review cannot rename classes: the run has a prior, or texts of the names."""
        request = self.facts["request"]
        return request["prior"] is not None or bool(request.get("classes"))

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of an item by its path; a photo comes before an example."""
        return {path: n for n, path in reversed(list(enumerate(self.paths)))}

    @cached_property
    def copies(self) -> dict[str, list[int]]:
        """Numbers of the photos with the same content, by digest, where there are several."""
        found: dict[str, list[int]] = {}
        for number, digest in enumerate(self.digests[: self.n_photos]):
            if digest:
                found.setdefault(digest, []).append(number)
        return {digest: numbers for digest, numbers in found.items() if len(numbers) > 1}

    @cached_property
    def readable(self) -> NDArray[np.bool_]:
        """Which photos can be read."""
        return np.not_equal(self.status, STATUSES.index("unreadable"))

    @cached_property
    def audit_order(self) -> list[int]:
        """The readable photos in a fixed random order, which does not depend on any label."""
        numbers = np.flatnonzero(self.readable).tolist()
        return sorted(numbers, key=self._audit_key)

    @cached_property
    def estimate(self) -> Estimate | None:
        """The estimated accuracy from held-out examples."""
        found = self.facts.get("estimate")
        if not found:
            return None
        return Estimate(found["accuracy"], found["low"], found["high"], int(found["held_out"]))

    @cached_property
    def items_digest(self) -> str:
        """A short digest of the order of the items, on which their numbers depend."""
        text = "\0".join(self.paths).encode(errors="surrogateescape")
        return hashlib.sha256(text).hexdigest()[:16]

    @cached_property
    def labels_digest(self) -> str:
        """A short digest of the solver's labels and confidences, which changes when they do."""
        names = "\0".join(self.classes).encode()
        content = names + self.predicted.tobytes() + self.confidence.tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    def name_of(self, number: int) -> str:
        """Return the class that the solver chose for a photo; empty if none."""
        chosen = self.predicted[number]
        return "" if chosen == NO_CLASS else self.classes[chosen]

    def can_answer(self, number: int) -> bool:
        """Whether a person can answer an item: all but photos that cannot be read."""
        return number >= self.n_photos or bool(self.readable[number])

    def with_copies(self, numbers: Iterable[int]) -> list[int]:
        """Return some items, and with every photo those of the same content."""
        found: dict[int, None] = {}
        for number in numbers:
            same = self.copies.get(self.digests[number]) if number < self.n_photos else None
            found.update(dict.fromkeys(same or [number]))
        return list(found)

    def _audit_key(self, number: int) -> bytes:
        text = f"audit\0{self.digests[number]}\0{self.paths[number]}"
        return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


def read_pool(run: Path) -> Pool:
    """Read the items of a finished run.

    Raises
    ------
    DataError
        If there is no finished run, or its files are damaged.
    """
    pool = make_pool(read_run(run))
    for name in ("number_of", "copies", "audit_order", "items_digest", "labels_digest"):
        getattr(pool, name)  # computed now, so that no answer waits for it
    return pool


def make_pool(run: FinishedRun) -> Pool:
    """Make the arrays of a run."""
    own = [example for example in (*run.examples, *run.dropped) if not example.given]
    probabilities = run.probabilities.astype(np.float32)
    known = ~np.isnan(probabilities).any(axis=1)
    order = np.sort(np.nan_to_num(probabilities), axis=1)
    return Pool(
        facts=run.facts,
        classes=tuple(run.facts["classes"]),
        paths=[*(photo.path for photo in run.labels), *(e.image.path for e in own)],
        files=[*(photo.file for photo in run.labels), *(e.image.file for e in own)],
        digests=[*run.digests, *(example.digest for example in own)],
        examples=own,
        looks_like={
            entry["path"]: entry["looks_like"]
            for entry in run.facts["examples"]
            if "looks_like" in entry
        },
        probabilities=probabilities,
        predicted=np.where(known, np.nan_to_num(probabilities).argmax(1), NO_CLASS).astype(
            np.int32
        ),
        confidence=np.where(known, order[:, -1], np.nan).astype(np.float32),
        margin=np.where(known, order[:, -1] - order[:, -2], np.nan).astype(np.float32),
        outlier_score=run.outlier_scores.astype(np.float32),
        status=np.array([STATUSES.index(photo.status) for photo in run.labels], dtype=np.int8),
        reasons=[photo.reason for photo in run.labels],
        withheld=np.array([not p.label and p.reason != CORRECTED for p in run.labels]),
    )


def example_label(example: Example) -> str:
    """Return the label of an example; empty if it belongs to none of the classes."""
    return "" if example.label == NONE else example.label
