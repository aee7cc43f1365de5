r"""Train the networks of a plan, and keep what is small: logs, features, rows, 8-bit weights.

    python scripts/train_networks.py results/training/networks.toml --device cuda \
        --data mini-imagenet=data/mini-imagenet --data cub=data/cub --runs runs --keep kept

An entry of the plan has a name, the arguments of ``infoshot.train``, and what to keep::

    [[network]]
    name = "mini-resnet18-seed2"
    keep_weights = false
    images = ["mini-imagenet", "cub"]    # test images to extract features of
    train = { dataset = "mini-imagenet", backbone = "resnet18", seed = 2 }

``teacher`` and ``init`` name an earlier entry, or else a checkpoint. Features are those of the best
epoch with its weights rounded to 8 bits, so that the kept weights give the kept features; they have
4 bits per value. An entry with ``splits = []`` keeps its log only, such as a few-shot system, which
``infoshot reproduce --system`` evaluates. Run the command again to resume: finished entries are
skipped, and a training continues after its last epoch. ``--minutes`` ends the work in time, for
machines that are lent for a while.
"""

import argparse
import json
import shutil
import signal
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from embed_features import write_quantised
from shrink_checkpoint import shrink

import infoshot
from infoshot.features import digest

DONE = "done"
_LOGS = ("log.jsonl", "log.csv", "curve.png", "config.toml")
_METHODS = ("prototype", "simpleshot", "tim-adm")
_NAMED_ENTRIES = ("teacher", "init")


@dataclass(frozen=True)
class Entry:
    """A network of the plan."""

    name: str
    train: Mapping[str, Any]
    images: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("test",)
    keep_weights: bool = False


@dataclass(frozen=True)
class Folders:
    """Where images are, where runs are, and where the small files go."""

    data: Mapping[str, Path]
    runs: Path
    keep: Path


def read_plan(path: Path) -> list[Entry]:
    """Read the entries of a plan; unknown keys are an error."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["network"]
    lists = ("images", "splits")
    return [
        Entry(**{key: tuple(v) if key in lists else v for key, v in entry.items()})
        for entry in entries
    ]


def train_network(entry: Entry, folders: Folders, device: str) -> None:
    """Train one network and keep its small files."""
    arguments = dict(entry.train)
    for key in _NAMED_ENTRIES:
        if key in arguments:
            earlier = folders.runs / arguments[key]
            arguments[key] = earlier if earlier.exists() else Path(arguments[key])
    run, kept = folders.runs / entry.name, folders.keep / entry.name
    result = infoshot.train(
        root=folders.data[arguments["dataset"]],
        out=run,
        device=device,
        compile=device.startswith("cuda"),
        progress=True,
        **arguments,
    )
    kept.mkdir(parents=True, exist_ok=True)
    for name in _LOGS:
        shutil.copy(run / name, kept / name)
    if entry.splits or entry.keep_weights:
        small = run / "small"
        shrink(result.best, small, torch.int8)
        for dataset in entry.images or (arguments["dataset"],):
            for split in entry.splits:
                _keep_features(small, dataset, split, kept, folders, device)
        if entry.keep_weights:
            shutil.copytree(small, kept / "checkpoint", dirs_exist_ok=True)
    (kept / DONE).touch()


def _keep_features(
    checkpoint: Path, images: str, split: str, kept: Path, folders: Folders, device: str
) -> None:
    """Extract the features of a split, evaluate them, and keep both."""
    base = str(json.loads((checkpoint / "checkpoint.json").read_text())["config"]["dataset"])
    path = folders.runs / f"{kept.name}-{images}-{split}.safetensors"
    table = infoshot.extract(
        images,
        folders.data[images],
        checkpoint=checkpoint,
        split=split,
        out=path,
        base_mean=True,
        base_root=None if images == base else folders.data[base],
        cache=folders.runs / "cache",
        device=device,
        progress=True,
    )
    small = kept / f"{images}-{split}.safetensors"
    write_quantised(small, table, 4, source_sha256=digest(path))
    result = infoshot.bench(small, _METHODS, device=device, progress=True)
    (kept / f"bench-{images}-{split}.json").write_text(result.to_json(), encoding="utf-8")


def main() -> None:
    """Train every network of the plan that is not done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--data", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--keep", type=Path, default=Path("kept"))
    parser.add_argument("--only", help="names of entries, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, help="end in time, and resume another time")
    arguments = parser.parse_args()
    data = dict(pair.split("=", maxsplit=1) for pair in arguments.data)
    folders = Folders(
        {name: Path(path) for name, path in data.items()}, arguments.runs, arguments.keep
    )
    only = arguments.only.split(",") if arguments.only else None
    if arguments.minutes is not None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 60 * arguments.minutes)
    for entry in read_plan(arguments.plan):
        if (only is None or entry.name in only) and not (folders.keep / entry.name / DONE).exists():
            print(f"--- {entry.name}", flush=True)
            train_network(entry, folders, arguments.device)


if __name__ == "__main__":
    main()
