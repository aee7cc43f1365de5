"""``infoshot extract-shards``: features of any pile of images, in files for ``solve-shards``."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.backbones.encoders import open_encoder
from infoshot.cli import image_options as given
from infoshot.cli._console import SpokenProgress, progress_bar, stdout
from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import join_processes
from infoshot.features.extract import Extraction
from infoshot.features.shard_files import extract_shards
from infoshot.images.folders import find_photos

_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def extract_shards_command(
    images: Annotated[Path, typer.Argument(help="Any tree of images, a CSV, or a text list.")],
    out: Annotated[Path, typer.Option(help="Folder for the shards.")],
    backbone: Annotated[
        str,
        typer.Option(
            help="efficientnet-lite0, folder of a checkpoint, hf:ID, timm:NAME, onnx:FILE."
        ),
    ] = "efficientnet-lite0",
    shard_size: Annotated[int, typer.Option(help="Images per shard.")] = 10_000,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    device: given.Device = None,
) -> None:
    """Features of any pile of images as shards for solve-shards, finished ones passed over.

    Example: infoshot extract-shards photos/ --out shards/

    Several processes: torchrun --nproc-per-node 4 -m infoshot extract-shards ... (the same files).
    """
    if dtype not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", dtype, _DTYPES))
    keep_freed_memory()
    with join_processes(given.device_or_default(device)) as ranks:
        photos = find_photos(images, without=[out])
        network, how = open_encoder(backbone), Extraction(device=ranks.device)
        how.sizes(network)
        with progress_bar("images", shown=ranks.is_main) as progress:
            bar = progress.add_task("extracting", total=len(photos))
            spoken = SpokenProgress(shown=ranks.is_main and progress.disable)
            spoken.begin("extracting", len(photos))

            def advance(n_done: int) -> None:
                progress.advance(bar, n_done * ranks.size)
                spoken.advance(n_done * ranks.size)

            done = extract_shards(
                photos,
                network,
                how,
                out,
                shard_size=shard_size,
                dtype=_DTYPES[dtype],
                ranks=ranks,
                on_progress=advance,
            )
        if ranks.is_main:
            stdout().print(
                f"{done.n_images:,} images in {done.n_shards:,} shards, {done.n_made:,} of them "
                f"made now; {done.n_unreadable:,} images could not be read: {out}",
                soft_wrap=True,
            )
