"""``infoshot extract``: features of a data set into a feature file."""

from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.atomic import check_outputs
from infoshot.backbones.checkpoints import Checkpoint, load_checkpoint, pretrained_checkpoint
from infoshot.checks import unknown_name
from infoshot.cli.console import progress_bar, stdout
from infoshot.data import ImageDataset, ImageSplit, open_dataset
from infoshot.errors import InvalidArgumentError
from infoshot.features import write_features
from infoshot.features.cache import cached
from infoshot.features.extract import Extraction, extract_features, feature_table, provenance
from infoshot.types import FeatureTable

_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def extract(
    dataset: Annotated[str, typer.Option(help="mini-imagenet, tiered-imagenet, cub or folder.")],
    root: Annotated[Path, typer.Option(help="Class folders, CSV lists, tar archives, pickles.")],
    out: Annotated[Path, typer.Option(help="Feature file to write.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    checkpoint: Annotated[Path | None, typer.Option(help="Folder of a checkpoint.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Pretrained backbone instead: efficientnet-lite0.")
    ] = None,
    splits: Annotated[
        Path | None, typer.Option(help="JSON with the classes of each split.")
    ] = None,
    resize: Annotated[int | None, typer.Option(help="Shorter side; default: published.")] = None,
    crop: Annotated[int | None, typer.Option(help="Middle square; default: published.")] = None,
    base_mean: Annotated[
        bool, typer.Option(help="Also the mean feature of the train split, for simpleshot.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    batch_size: Annotated[
        int | None, typer.Option(help="Images per pass; default: 8 on a CPU, else 256.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Keep features here between runs.")] = None,
) -> None:
    """Features of every image of a split, with labels, class names and where they came from.

    Example: infoshot extract --dataset folder --root photos --backbone efficientnet-lite0
    --out photos.safetensors
    """
    if dtype not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", dtype, _DTYPES))
    network = _network(checkpoint, backbone)
    how = Extraction(resize=resize, crop=crop, batch_size=batch_size, device=device)
    how.sizes(network)
    check_outputs([root], [out])
    images = open_dataset(dataset, root, splits)
    table = _table(images, images.split(split), network, how, cache)
    mean = None
    if base_mean:
        mean = _table(images, images.split("train"), network, how, cache).features.mean(0)
    features = table.features.to(_DTYPES[dtype])
    write_features(
        out,
        FeatureTable(features, table.labels, mean, table.class_names, table.provenance),
    )
    n_images, width = features.shape
    stdout().print(
        f"{n_images} images of {len(table.class_names)} classes, {width} features each: {out}",
        soft_wrap=True,
    )


def _network(checkpoint: Path | None, backbone: str | None) -> Checkpoint:
    if (checkpoint is None) == (backbone is None):
        raise InvalidArgumentError("give either --checkpoint or --backbone.")
    return load_checkpoint(checkpoint) if checkpoint else pretrained_checkpoint(str(backbone))


def _table(
    images: ImageDataset,
    split: ImageSplit,
    network: Checkpoint,
    how: Extraction,
    cache: Path | None,
) -> FeatureTable:
    about = provenance(images.spec.name, split, network, how)

    def make() -> FeatureTable:
        with progress_bar() as progress:
            bar = progress.add_task(f"extracting {split.name}", total=len(split.records))
            features = extract_features(
                split, network, how, on_progress=partial(progress.advance, bar)
            )
        return feature_table(split, features, about)

    return cached(cache, about, make) if cache else make()
