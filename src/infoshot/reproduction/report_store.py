"""Results on disk, cell by cell: what was computed under the same digests is not computed again."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from infoshot.benchmark import Protocol, rows_from_json, rows_to_json
from infoshot.core.atomic import write_atomically
from infoshot.core.errors import DataError
from infoshot.core.types import ResultRow
from infoshot.reproduction.sources import Source

_FORMAT = "infoshot.reproduction/1"


@dataclass
class Store:
    """The folder of a report: ``results.json`` and ``accuracies.safetensors``.

    Both are written whole after every cell, the accuracies first, so a cell counts as computed only
    if it is in both.
    """

    folder: Path
    sources: Sequence[Source]
    rows: dict[str, ResultRow] = field(default_factory=dict)
    accuracies: dict[str, Tensor] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def read(self) -> None:
        """Take up what an earlier run of the same features left.

        Raises
        ------
        DataError
            If the folder holds results of something else; nothing is overwritten.
        """
        path = self.folder / "results.json"
        if not path.exists():
            return
        try:
            document = json.loads(path.read_text())
            sources = [Source(**entry) for entry in document["features"]]
            keys = [entry.pop("key") for entry in document["rows"]]
            rows = rows_from_json(json.dumps(document["rows"]))
            extra, format_name = document["extra"], document["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: not a result of this command, so it is left alone; choose another folder "
                "for --out."
            ) from error
        if format_name != _FORMAT or sources != list(self.sources):
            names = ", ".join(source.name for source in sources)
            raise DataError(
                f"{path}: holds results of other features ({names}), which would be lost; choose "
                "another folder for --out."
            )
        self.accuracies = _read_accuracies(self.folder / "accuracies.safetensors")
        self.rows = {
            key: row for key, row in zip(keys, rows, strict=True) if key in self.accuracies
        }
        self.extra = extra

    def add(self, key: str, row: ResultRow, accuracies: Tensor) -> None:
        """Keep one more cell."""
        self.rows[key] = row
        self.accuracies[key] = accuracies.to(torch.float32).contiguous()
        self.write()

    def write(self) -> None:
        """Write both files anew."""
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


def cell_key(protocol: Protocol, *what: Any) -> str:  # noqa: ANN401 - any plain value
    """Digest of all that the numbers of a cell depend on: what is run on what, and how."""
    spec = protocol.spec
    how = [
        [spec.n_way, spec.n_shot, spec.n_query, spec.seed, str(spec.regime)],
        protocol.n_tasks,
        str(protocol.dtype),
        protocol.device.split(":")[0],
    ]
    return hashlib.sha256(json.dumps([*what, *how], sort_keys=True).encode()).hexdigest()[:16]


def _read_accuracies(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return {}
