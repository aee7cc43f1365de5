"""The stored results of a report: one row and the accuracies of all tasks for each cell.

Results are stored under the keys of their cells, so that an interrupted run resumes and that
feature files can be added to a report later.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

_FORMAT = "infoshot.reproduce/1"


@dataclass
class Store:
    """The results in the folder of a report: ``results.json`` and ``accuracies.safetensors``.

    Both are rewritten after every cell, the accuracies first. A cell counts as computed if it is in
    both. ``extra`` holds the measured run times and curves.
    """

    folder: Path
    sources: Sequence[Source]
    rows: dict[str, ResultRow] = field(default_factory=dict)
    accuracies: dict[str, Tensor] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def read(self) -> None:
        """Read the results of an earlier run, whose feature files must be among the given ones.

        Raises
        ------
        DataError
            If the folder holds something else, or results of other features; nothing is
            overwritten.
        """
        path = self.folder / "results.json"
        if not path.exists():
            return
        try:
            document = json.loads(read_regular(path))
            sources = [Source(**entry) for entry in document["features"]]
            keys = [entry.pop("key") for entry in document["rows"]]
            rows = rows_from_json(json.dumps(document["rows"]))
            extra, format_name = document["extra"], document["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _not_a_report(path) from error
        if format_name != _FORMAT:
            raise _not_a_report(path)
        self._check_sources(path, sources)
        self.accuracies = _read_accuracies(self.folder / "accuracies.safetensors")
        self.rows = {
            key: row for key, row in zip(keys, rows, strict=True) if key in self.accuracies
        }
        self.extra = extra

    def _check_sources(self, path: Path, stored: Sequence[Source]) -> None:
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
        write_atomically(self.folder / "accuracies.safetensors", save(self.accuracies))
        entries = json.loads(rows_to_json(list(self.rows.values())))
        document = {
            "format": _FORMAT,
            "features": [dataclasses.asdict(source) for source in self.sources],
            "rows": [{"key": key, **entry} for key, entry in zip(self.rows, entries, strict=True)],
            "extra": self.extra,
        }
        text = json.dumps(document, indent=1, allow_nan=False)
        write_atomically(self.folder / "results.json", text + "\n")


def _not_a_report(path: Path) -> DataError:
    return DataError(
        f"{path}: not the results of a report, so it is not overwritten; pass another folder as "
        "out=DIR."
    )


def _read_accuracies(path: Path) -> dict[str, Tensor]:
    try:
        return load(read_regular(path))
    except (OSError, SafetensorError):
        return {}
