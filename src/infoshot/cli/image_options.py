"""What the commands share that read images: their options, and leaving out what is broken."""

import os
from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.cli.console import complain, progress_bar
from infoshot.data import ImageSplit
from infoshot.data.decoded import broken_images
from infoshot.distributed import Ranks
from infoshot.errors import DataError

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

# To decode images. Small ones spend most of their time under Python's lock, where more threads only
# get in each other's way: on 16 cores 84 x 84 JPEGs decode at 4,400 a second with 2 threads, 3,100
# with 4 and 2,400 with 16. Large photos spend it outside, where 4 threads are 4 times as fast.
N_THREADS = min(4, max(2, os.cpu_count() or 2))
_MOST_LINES = 10


def device_or_default(device: str | None) -> str:
    """Return the device that was asked for, else a GPU where there is one."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def without_broken(split: ImageSplit, ranks: Ranks) -> ImageSplit:
    """Return the split without the images that do not decode; they are listed on stderr."""
    with progress_bar("images", shown=ranks.is_main) as progress:
        bar = progress.add_task(f"checking {split.name}", total=len(split.records))
        broken = broken_images(
            split.records, n_threads=N_THREADS, on_progress=lambda n: progress.advance(bar, n)
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
    return split.without(broken)
