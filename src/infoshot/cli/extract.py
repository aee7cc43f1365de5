"""``infoshot extract``: features of a data set into a feature file."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.backbones.checkpoints import Checkpoint, open_checkpoint
from infoshot.cli import image_options as given
from infoshot.cli._console import progress_bar, stdout
from infoshot.core.atomic import check_outputs
from infoshot.core.checks import unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.memory import keep_freed_memory
from infoshot.core.types import FeatureTable
from infoshot.distributed import Ranks, join_processes
from infoshot.features import write_features
from infoshot.features.extract import Extraction, split_features
from infoshot.images import ImageSplit, open_dataset

_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def extract(
    dataset: given.Dataset,
    root: given.Root,
    out: Annotated[Path, typer.Option(help="Feature file to write.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of a checkpoint, or a PyTorch file of weights.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Pretrained instead: efficientnet-lite0; or whose the file's weights are."
        ),
    ] = None,
    splits: given.Splits = None,
    resize: Annotated[int | None, typer.Option(help="Shorter side; default: published.")] = None,
    crop: Annotated[int | None, typer.Option(help="Middle square; default: published.")] = None,
    base_mean: Annotated[
        bool, typer.Option(help="Also the mean feature of the train split, for simpleshot.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    device: given.Device = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per pass; default: 4 on a CPU, else 256.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Keep features here between runs.")] = None,
    skip_broken: given.SkipBroken = False,
) -> None:
    """Features of every image of a split, with labels, class names and where they came from.

    Example: infoshot extract --dataset folder --root photos --backbone efficientnet-lite0
    --out photos.safetensors

    Several processes: torchrun --nproc-per-node 4 -m infoshot extract ... (the same features).
    """
    if dtype not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", dtype, _DTYPES))
    network = open_checkpoint(checkpoint, backbone)
    check_outputs([root], [out])
    keep_freed_memory()
    with join_processes(given.device_or_default(device)) as ranks:
        how = Extraction(resize=resize, crop=crop, batch_size=batch_size, device=ranks.device)
        how.sizes(network)
        images = open_dataset(dataset, root, splits)
        wanted = [images.split(name) for name in ([split, "train"] if base_mean else [split])]
        if skip_broken:
            wanted = [given.without_broken(part, ranks) for part in wanted]
        table, *base = (_features(dataset, part, network, how, cache, ranks) for part in wanted)
    if table is None:  # another process writes
        return
    mean = base[0].features.mean(0) if base and base[0] else None
    features = table.features.to(_DTYPES[dtype])
    if not features.isfinite().all():
        raise DataError(f"the features are too large for {dtype}; --dtype float32 holds them.")
    write_features(
        out,
        FeatureTable(features, table.labels, mean, table.class_names, table.provenance),
    )
    n_images, width = features.shape
    stdout().print(
        f"{n_images} images of {len(table.class_names)} classes, {width} features each: {out}",
        soft_wrap=True,
    )


def _features(
    dataset: str,
    split: ImageSplit,
    network: Checkpoint,
    how: Extraction,
    cache: Path | None,
    ranks: Ranks,
) -> FeatureTable | None:
    with progress_bar("images", shown=ranks.is_main) as progress:
        bar = progress.add_task(f"extracting {split.name}", total=len(split.records))
        return split_features(
            dataset,
            split,
            network,
            how,
            cache=cache,
            ranks=ranks,
            on_progress=lambda n_done: progress.advance(bar, n_done * ranks.size),
        )
