"""The stored results of a report: one row and the accuracies of all tasks for each cell.

Results are stored under the keys of their cells, so that an interrupted run resumes and that
feature files can be added to a report later.
"""

import dataclasses
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
from infoshot.reproduction.report_cells import Source
from infoshot.reproduction.reported_runs import SystemRun, merge_runs

_FORMAT, _NAME = "infoshot.reproduce/1", "results.json"
_DTYPES = (torch.uint8, torch.int16, torch.int32)  # of numbers of correct queries


@dataclass
class Store:
    """The results in the folder of a report: ``results.json`` and ``accuracies.safetensors``.

    Both are rewritten after every cell, the accuracies first. A cell counts as computed if it is in
    both. The file holds numbers of correct queries, in a quarter of the space of accuracies.
    ``systems`` are the runs of trained systems that are given or stored, and ``extra`` holds
    the measured run times and curves.
    """

    folder: Path
    sources: Sequence[Source]
    systems: Sequence[SystemRun] = ()
    rows: dict[str, ResultRow] = field(default_factory=dict)
    accuracies: dict[str, Tensor] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def read(self) -> None:
        """Read the results of an earlier run, whose feature files must be among the given ones.

        Its trained systems need not be given.

        Raises
        ------
        DataError
            If the folder holds something else, or results of other features; nothing is
            overwritten.
        """
        stored = _read_document(self.folder)
        if stored is None:
            return
        self._check_sources(stored.sources)
        tensors = _read_tensors(self.folder / "accuracies.safetensors")
        self.rows = {key: row for key, row in stored.rows.items() if key in tensors}
        self.accuracies = {
            key: _accuracies_from_counts(tensors[key], row) for key, row in self.rows.items()
        }
        self.systems = merge_runs(stored.systems, self.systems)
        self.extra = stored.extra

    def _check_sources(self, stored: Sequence[Source]) -> None:
        path = self.folder / _NAME
        given = {source.digest for source in self.sources}
        missing = [source.name for source in stored if source.digest not in given]
        if missing:
            raise DataError(
                f"{path}: holds results of features that are not given ({', '.join(missing)}), so "
                "it is not overwritten; pass these files too, or another folder as out=DIR."
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
            "features": [dataclasses.asdict(source) for source in self.sources],
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


class _Document(NamedTuple):
    """The content of ``results.json``."""

    sources: list[Source]
    systems: list[SystemRun]
    rows: dict[str, ResultRow]
    extra: dict[str, Any]


def _read_document(folder: Path) -> _Document | None:
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        document = json.loads(read_regular(path))
        sources = [Source(**entry) for entry in document["features"]]
        # Reports of earlier versions have no systems.
        systems = [SystemRun.from_json(entry) for entry in document.get("systems", [])]
        keys = [entry.pop("key") for entry in document["rows"]]
        rows = rows_from_json(json.dumps(document["rows"]))
        extra, format_name = document["extra"], document["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_a_report(path) from error
    if format_name != _FORMAT:
        raise _not_a_report(path)
    return _Document(sources, systems, dict(zip(keys, rows, strict=True)), extra)


def _not_a_report(path: Path) -> DataError:
    return DataError(
        f"{path}: not the results of a report, so it is not overwritten; pass another folder as "
        "out=DIR."
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
