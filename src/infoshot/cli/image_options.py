"""What the commands share that read images: their options, and leaving out what is broken."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.cli._console import complain, progress_bar
from infoshot.core.errors import DataError
from infoshot.distributed import Ranks
from infoshot.images import ImageSplit
from infoshot.images.in_memory import broken_images
from infoshot.images.workers import decode_workers

Dataset = Annotated[
    str, typer.Option(help="mini-imagenet, tiered-imagenet, cub, or folder: any class folders.")
]
Root = Annotated[Path, typer.Option(help="Class folders, CSV lists, tar archives, pickles.")]
Splits = Annotated[
    Path | None,
    typer.Option(help='JSON file: {"train": classes, "val": classes, "test": classes}.'),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, ...; default: cuda if there is one.")
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="List images that do not decode, and go on.")
]

_MOST_LINES = 10


def device_or_default(device: str | None) -> str:
    """Return the device that was asked for, else a GPU where there is one."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def without_broken(split: ImageSplit, ranks: Ranks) -> ImageSplit:
    """Return the split without the images that do not decode; they are listed on stderr."""
    with progress_bar("images", shown=ranks.is_main) as progress:
        bar = progress.add_task(f"checking {split.name}", total=len(split.records))
        broken = broken_images(
            split.records,
            n_workers=decode_workers(),
            on_progress=lambda n: progress.advance(bar, n),
        )
    if len(broken) == len(split.records):
        raise DataError(f"no image of the split '{split.name}' decodes; {broken[0]}")
    if broken and ranks.is_main:
        complain("Warning", f"{len(broken)} images of '{split.name}' are left out:")
        for sentence in list(broken.values())[:_MOST_LINES]:
            complain("Left out", sentence)
        if len(broken) > _MOST_LINES:
            complain(
                "Left out", f"{len(broken) - _MOST_LINES} more; infoshot data inspect has them all."
            )
    kept = split.without(broken)
    gone = sorted(set(split.class_names) - set(kept.class_names))
    if gone and ranks.is_main:
        complain(
            "Warning", f"no image is left of these classes of '{split.name}': {', '.join(gone)}."
        )
    return kept
