"""The files that a command leaves: whether each is whole, and what of it must be the same again."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from PIL import Image
from safetensors import safe_open

from tests.kills.commands import Command

_CACHES = ("cache", "out/digits/features")  # where a command keeps the features of images

# Times, speeds and the machine differ from run to run.
_OF_THE_RUN = {
    "seconds", "per_task_ms", "memory_mb", "environment", "images_per_second", "seconds_per_step",
    "ms", "milliseconds",
}  # fmt: skip


def list_files(folder: Path) -> set[str]:
    """List all files below a folder, hidden ones too, except those of a cache.

    Several processes may share a cache, so that an unfinished file in it may belong to another one;
    and which features share one file depends on where a run was stopped.
    """
    paths = {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir()}
    return {str(path) for path in paths if not any(map(path.is_relative_to, _CACHES))}


def check_whole(folder: Path) -> None:
    """Fail unless every file with a final name can be read to its end."""
    for name in sorted(list_files(folder)):
        if not any(part.startswith(".") for part in Path(name).parts):
            _READERS.get(Path(name).suffix, lambda _: None)(folder / name)


def read_content(folder: Path, command: Command) -> dict[str, Any]:
    """Read what an undisturbed and a resumed command must have in common.

    JSON is compared without times; files that show times in other ways only have to be there.
    """
    found: dict[str, Any] = {}
    for name in list_files(folder):
        path = folder / name
        if path.name in command.loose:
            found[name] = "whole"
        elif path.suffix == ".json":
            found[name] = _without_times(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            lines = path.read_text().splitlines()
            found[name] = [_without_times(json.loads(line)) for line in lines]
        elif path.name == "log.csv":
            rows = csv.DictReader(io.StringIO(path.read_text(), newline=""))
            found[name] = [_without_times(dict(row)) for row in rows]
        else:
            found[name] = path.read_bytes()
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in _OF_THE_RUN}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _read_safetensors(path: Path) -> None:
    with safe_open(path, framework="np") as file:
        for name in file.keys():  # noqa: SIM118 - not a dict
            file.get_slice(name).get_shape()


def _read_csv(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n"), path
    widths = {len(row) for row in csv.reader(io.StringIO(text, newline=""))}
    assert len(widths) == 1, f"{path}: lines of {widths} columns"


def _read_image(path: Path) -> None:
    with Image.open(path) as image:
        image.load()


def _read_text(end: str, path: Path) -> None:
    assert path.read_text(encoding="utf-8").endswith(end), f"{path} has no end"


_READERS = {
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    ".safetensors": _read_safetensors,
    ".parquet": pq.read_table,
    ".csv": _read_csv,
    ".png": _read_image,
    ".html": lambda path: _read_text("</html>\n", path),
    ".md": lambda path: _read_text("\n", path),
    ".tex": lambda path: _read_text("\n", path),
    ".toml": lambda path: _read_text("\n", path),
}
