"""``infoshot extract``: features of a data set into a feature file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.atomic import check_outputs
from infoshot.backbones.checkpoints import Checkpoint, load_checkpoint, pretrained_checkpoint
from infoshot.checks import unknown_name
from infoshot.cli.console import progress_bar, stdout
from infoshot.cli.images import (
    N_THREADS,
    DatasetOption,
    DeviceOption,
    RootOption,
    SkipBrokenOption,
    SplitsOption,
    device_or_default,
    without_broken,
)
from infoshot.data import ImageDataset, open_dataset
from infoshot.distributed import Ranks, joined_ranks
from infoshot.errors import InvalidArgumentError
from infoshot.features import write_features
from infoshot.features.cache import cached
from infoshot.features.extract import Extraction, extract_features, feature_table, provenance
from infoshot.types import FeatureTable

_DTYPES = {"float16": torch.float16, "float32": torch.float32}


def extract(
    dataset: DatasetOption,
    root: RootOption,
    out: Annotated[Path, typer.Option(help="Feature file to write.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    checkpoint: Annotated[Path | None, typer.Option(help="Folder of a checkpoint.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Pretrained backbone instead: efficientnet-lite0.")
    ] = None,
    splits: SplitsOption = None,
    resize: Annotated[int | None, typer.Option(help="Shorter side; default: published.")] = None,
    crop: Annotated[int | None, typer.Option(help="Middle square; default: published.")] = None,
    base_mean: Annotated[
        bool, typer.Option(help="Also the mean feature of the train split, for simpleshot.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    device: DeviceOption = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per pass; default: 8 on a CPU, else 256.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Keep features here between runs.")] = None,
    skip_broken: SkipBrokenOption = False,
) -> None:
    """Features of every image of a split, with labels, class names and where they came from.

    Example: infoshot extract --dataset folder --root photos --backbone efficientnet-lite0
    --out photos.safetensors

    Several processes: torchrun --nproc-per-node 4 -m infoshot extract ... (the same features).
    """
    if dtype not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", dtype, _DTYPES))
    network = _network(checkpoint, backbone)
    check_outputs([root], [out])
    with joined_ranks(device_or_default(device)) as ranks:
        how = Extraction(
            resize=resize,
            crop=crop,
            batch_size=batch_size,
            device=ranks.device,
            n_threads=N_THREADS,
        )
        how.sizes(network)
        images = open_dataset(dataset, root, splits)
        job = _Job(images, network, how, cache, skip_broken, ranks)
        table, base = job.table(split), job.table("train") if base_mean else None
    if table is None:  # another process writes
        return
    mean = None if base is None else base.features.mean(0)
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


@dataclass(frozen=True)
class _Job:
    images: ImageDataset
    network: Checkpoint
    how: Extraction
    cache: Path | None
    skip_broken: bool
    ranks: Ranks

    def table(self, name: str) -> FeatureTable | None:
        """Features of a split, in the main process."""
        split = self.images.split(name)
        if self.skip_broken:
            split = without_broken(split, self.ranks)
        about = provenance(self.images.spec.name, split, self.network, self.how)

        def make() -> FeatureTable:
            with progress_bar("images", shown=self.ranks.is_main) as progress:
                bar = progress.add_task(f"extracting {name}", total=len(split.records))
                features = extract_features(
                    split,
                    self.network,
                    self.how,
                    ranks=self.ranks,
                    on_progress=lambda n_done: progress.advance(bar, n_done * self.ranks.size),
                )
            return feature_table(split, features, about)

        table = cached(self.cache, about, make, self.ranks) if self.cache else make()
        return table if self.ranks.is_main else None


def _network(checkpoint: Path | None, backbone: str | None) -> Checkpoint:
    if (checkpoint is None) == (backbone is None):
        raise InvalidArgumentError("give either --checkpoint or --backbone.")
    return load_checkpoint(checkpoint) if checkpoint else pretrained_checkpoint(str(backbone))
