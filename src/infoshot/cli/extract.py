"""``infoshot extract``: features of a data set into a feature file."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli import _options as given
from infoshot.cli._console import stdout
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import is_main_process
from infoshot.features import api
from infoshot.labelling.output_checks import check_results


def extract(
    dataset: given.Dataset,
    root: given.Root,
    out: Annotated[Path, typer.Option(help="Feature file to write.")],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a checkpoint or of a training run (its best epoch), or a PyTorch file "
            "of weights."
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Encoder instead of a checkpoint: efficientnet-lite0, dinov2-small or another "
            "name, hf:ID, timm:NAME, onnx:FILE, or package.module:Name. With a file of weights: "
            "its network."
        ),
    ] = None,
    splits: given.Splits = None,
    resize: Annotated[
        int | None, typer.Option(help="Pixels of the shorter side; default: the encoder's.")
    ] = None,
    crop: Annotated[
        int | None, typer.Option(help="Pixels of the central square; default: the encoder's.")
    ] = None,
    base_mean: Annotated[
        bool,
        typer.Option(
            help="Also store the mean feature of the classes the network was trained on, for "
            "simpleshot, and the scatter within them, for tim-auto. Where the network does not "
            "record its classes: the train split."
        ),
    ] = False,
    base_root: Annotated[
        Path | None,
        typer.Option(help="Images of these classes, if they are not under --root."),
    ] = None,
    base_dataset: given.BaseDataset = None,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    device: given.Device = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per forward pass; default: 4 on a CPU, else 256.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of cached features; default: the user's cache.")
    ] = None,
    skip_broken: given.SkipBroken = False,
) -> None:
    """Compute the features of every image of a split, with labels, class names and provenance.

    Rerun the command to resume an extraction that was interrupted.

    Example: infoshot extract --dataset folder --root photos --backbone efficientnet-lite0
    --out photos.safetensors

    Several processes: torchrun --nproc-per-node 4 -m infoshot extract ... (the same features).
    """
    keep_freed_memory()
    check_results([root, *filter(None, [base_root])], [out])
    table = api.extract(
        dataset,
        root,
        backbone=backbone,
        checkpoint=checkpoint,
        split=split,
        out=out,
        splits=splits,
        resize=resize,
        crop=crop,
        base_mean=base_mean,
        base_root=base_root,
        base_dataset=base_dataset,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        cache=cache,
        skip_broken=skip_broken,
        progress=True,
    )
    if is_main_process():
        n_images, width = table.features.shape
        stdout().print(
            f"{n_images} images of {len(table.class_names)} classes, {width} features each: {out}",
            soft_wrap=True,
        )
