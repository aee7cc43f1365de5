"""The stored results of a report: one row and the accuracies of all tasks for each cell.

Results are stored under the keys of their cells, so that an interrupted run resumes and that
feature files can be added to a report later. Nothing that is stored is lost.
"""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from infoshot.benchmark import rows_from_json, rows_to_json
from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError
from infoshot.core.regular_file import read_regular
from infoshot.core.types import ResultRow
from infoshot.reproduction.report_sources import FeatureFile, Source, merge_files
from infoshot.reproduction.reported_runs import SystemRun, merge_runs

_FORMAT, _NAME = "infoshot.reproduce/1", "results.json"
_DTYPES = (torch.uint8, torch.int16, torch.int32)  # of numbers of correct queries


@dataclass
class Store:
    """The results in the folder of a report: ``results.json`` and ``accuracies.safetensors``.

    Both are rewritten after every cell, the accuracies first. A cell counts as computed if it is in
    both. The file holds numbers of correct queries, in a quarter of the space of accuracies.
    ``files`` and ``systems`` are the feature files and the runs of trained systems that are given,
    and after :meth:`read` also those whose results are stored. ``extra`` holds the measured run
    times and curves.
    """

    folder: Path
    files: Sequence[FeatureFile]
    systems: Sequence[SystemRun] = ()
    rows: dict[str, ResultRow] = field(default_factory=dict)
    accuracies: dict[str, Tensor] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._given = {file.source.digest for file in self.files}

    @property
    def sources(self) -> list[Source]:
        """The sources of all feature files."""
        return [file.source for file in self.files]

    def is_given(self, source: Source) -> bool:
        """Whether a feature file is at hand; of the others results are stored."""
        return source.digest in self._given

    def read(self) -> None:
        """Read the results of an earlier run, whose files and systems need not be given.

        Raises
        ------
        DataError
            If the folder holds something else, or results of a file that may have the same network
            as a given one; nothing is overwritten.
        """
        stored = _read_document(self.folder)
        if stored is None:
            return
        self._check_networks(stored.files)
        tensors = _read_tensors(self.folder / "accuracies.safetensors")
        self.rows = {key: row for key, row in stored.rows.items() if key in tensors}
        self.accuracies = {
            key: _accuracies_from_counts(tensors[key], row) for key, row in self.rows.items()
        }
        self.files = merge_files(stored.files, self.files)
        self.systems = merge_runs(stored.systems, self.systems)
        self.extra = stored.extra

    def _check_networks(self, stored: Sequence[FeatureFile]) -> None:
        """Raise if one network would count as two: in a stored file, and in a given one."""
        path = self.folder / _NAME
        missing = [file for file in stored if not self.is_given(file.source)]
        for old, new in itertools.product(missing, self.files):
            one, other = old.source, new.source
            is_same, same_name = old.has_network_of(new), one.name == other.name
            holds = f"{path}: holds results of {'another ' if same_name else ''}{one.name}"
            if is_same:
                raise DataError(
                    f"{holds}, and {other.name} has the same weights and images but other content; "
                    "pass the first one instead, or out=DIR for another report."
                )
            if is_same is None and (same_name or one.group == other.group):
                raise DataError(
                    f"{holds}, which may be of the same network as {other.name}, because one of "
                    "them does not record its weights; pass both files, or out=DIR for another "
                    "report."
                )

    def add(self, key: str, row: ResultRow, accuracies: Tensor) -> None:
        """Store the result of a cell."""
        self.rows[key] = row
        self.accuracies[key] = accuracies.to(torch.float32).contiguous()
        self.write()

    def write(self) -> None:
        """Write both files."""
        counts = {key: _counts(self.accuracies[key], row) for key, row in self.rows.items()}
        write_atomically(self.folder / "accuracies.safetensors", save(counts))
        entries = json.loads(rows_to_json(list(self.rows.values())))
        document = {
            "format": _FORMAT,
            "features": [file.to_json() for file in self.files],
            "systems": [dataclasses.asdict(run) for run in self.systems],
            "rows": [{"key": key, **entry} for key, entry in zip(self.rows, entries, strict=True)],
            "extra": self.extra,
        }
        text = json.dumps(document, indent=1, allow_nan=False)
        write_atomically(self.folder / _NAME, text + "\n")


def stored_systems(folder: Path) -> Sequence[SystemRun]:
    """Return the trained systems whose results a folder holds; none if it holds no report."""
    stored = _read_document(folder)
    return () if stored is None else stored.systems


def stored_files(folder: Path) -> Sequence[FeatureFile]:
    """Return the feature files whose results a folder holds; none if it holds no report."""
    stored = _read_document(folder)
    return () if stored is None else stored.files


class _Document(NamedTuple):
    """The content of ``results.json``."""

    files: list[FeatureFile]
    systems: list[SystemRun]
    rows: dict[str, ResultRow]
    extra: dict[str, Any]


def _read_document(folder: Path) -> _Document | None:
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        document = json.loads(read_regular(path))
        files = [FeatureFile.from_json(entry) for entry in document["features"]]
        # Reports of earlier versions have no systems.
        systems = [SystemRun.from_json(entry) for entry in document.get("systems", [])]
        keys = [entry.pop("key") for entry in document["rows"]]
        rows = rows_from_json(json.dumps(document["rows"]))
        extra, format_name = document["extra"], document["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_a_report(path) from error
    if format_name != _FORMAT:
        raise _not_a_report(path)
    return _Document(files, systems, dict(zip(keys, rows, strict=True)), extra)


def _not_a_report(path: Path) -> DataError:
    return DataError(
        f"{path}: not the results of a report, so it is not overwritten; pass out=DIR for another "
        "folder."
    )


def _counts(accuracies: Tensor, row: ResultRow) -> Tensor:
    """Return the number of correct queries of each task."""
    counts = (accuracies.double() * row.ways * row.queries).round()
    fitting = (dtype for dtype in _DTYPES if counts.max() <= torch.iinfo(dtype).max)
    return counts.to(next(fitting))


def _accuracies_from_counts(tensor: Tensor, row: ResultRow) -> Tensor:
    if tensor.is_floating_point():  # reports of earlier versions hold the accuracies
        return tensor
    return (tensor.double() / (row.ways * row.queries)).float()


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load(read_regular(path))
    except (OSError, SafetensorError):
        return {}
