"""``infoshot extract-shards``: features of any images, in files for ``solve-shards``."""

from typing import Annotated

import typer

from infoshot.cli import _options as given
from infoshot.cli._console import stdout
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import is_main_process
from infoshot.features import api
from infoshot.labelling.api import DEFAULT_BACKBONE


def extract_shards(
    images: Annotated[
        str,
        typer.Argument(
            metavar="IMAGES",
            help="Folder tree of images, CSV file, text file of paths, or webdataset: a tar "
            "archive, a folder or a pattern of them.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="PATH", help="Folder for the shards.")],
    backbone: given.Backbone = DEFAULT_BACKBONE,
    shard_size: Annotated[int, typer.Option(help="Images per shard.")] = 10_000,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    device: given.Device = None,
    format: Annotated[
        str, typer.Option(help="safetensors, or parquet: columns path, embedding and id (of tars).")
    ] = "safetensors",
) -> None:
    """Compute the features of any images as shards for solve-shards; finished shards are kept.

    Example: infoshot extract-shards photos/ --out shards/

    Several processes: torchrun --nproc-per-node 4 -m infoshot extract-shards ... (the same files).
    """
    keep_freed_memory()
    counts = api.extract_shards(
        images,
        out,
        backbone=backbone,
        shard_size=shard_size,
        dtype=dtype,
        device=device,
        format=format,
        progress=True,
    )
    if is_main_process():
        stdout().print(
            f"{counts.n_images:,} images in {counts.n_shards:,} shards, {counts.n_new:,} of them "
            f"new; {counts.n_unreadable:,} images cannot be read: {out}",
            soft_wrap=True,
        )
