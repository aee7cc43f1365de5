"""``infoshot train``: base training with the published recipe."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot import training
from infoshot.backbones import make_backbone
from infoshot.cli import image_options as given
from infoshot.cli._console import complain, progress_bar, say, stdout
from infoshot.core.atomic import check_writable, make_folder
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import Ranks, join_processes
from infoshot.images import open_dataset
from infoshot.images.workers import decode_workers
from infoshot.training import EpochRecord, TrainConfig, TrainingImages


def train_backbone(
    dataset: given.Dataset,
    root: given.Root,
    backbone: Annotated[
        str, typer.Option(help="resnet18, wrn28-10, resnet12, conv4 or efficientnet-lite0.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run: best/, last/, log, curve.")],
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 90,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per step; default: 256, 128 for wrn28-10.")
    ] = None,
    lr: Annotated[
        float, typer.Option(help="Learning rate; a tenth after 1/2 and 11/15 of the epochs.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Of weights, order and augmentation.")] = 0,
    device: given.Device = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the network; pays off in long runs.")
    ] = False,
    splits: given.Splits = None,
    skip_broken: given.SkipBroken = False,
) -> None:
    """Train a network on the train classes; an interrupted training goes on by the same command.

    Example: infoshot train --dataset mini-imagenet --root data/mini-imagenet --backbone resnet18
    --out runs/resnet18

    Several GPUs: torchrun --nproc-per-node 4 -m infoshot train ... (the same batch, shared).
    """
    config = TrainConfig(
        backbone=backbone, epochs=epochs, batch_size=batch_size, learning_rate=lr, seed=seed
    )
    config.validate()
    make_backbone(backbone)
    if out.resolve() == root.resolve():
        raise InvalidArgumentError("--out must be another folder than --root, which holds images.")
    keep_freed_memory()
    with join_processes(given.device_or_default(device)) as ranks:
        config.check_shared(ranks.size)
        make_folder(out)
        check_writable(out / "log.jsonl")
        images = _images(dataset, root, splits, backbone, skip_broken, ranks)
        records = _train(images, config, out, compile, ranks)
        if ranks.is_main:
            _report(records, out)


def _images(
    dataset: str, root: Path, splits: Path | None, backbone: str, skip_broken: bool, ranks: Ranks
) -> TrainingImages:
    train_split, val_split = training.base_splits(open_dataset(dataset, root, splits))
    if skip_broken:
        train_split = given.without_broken(train_split, ranks)
        val_split = given.without_broken(val_split, ranks) if val_split else None
    n_images = len(train_split.records) + (len(val_split.records) if val_split else 0)
    with progress_bar("images", shown=ranks.is_main) as progress:
        bar = progress.add_task("decoding", total=n_images)
        return training.load_training_images(
            dataset,
            train_split,
            val_split,
            make_backbone(backbone).input_spec,
            n_workers=decode_workers(),
            on_progress=lambda n_done: progress.advance(bar, n_done),
        )


def _train(
    images: TrainingImages, config: TrainConfig, out: Path, compiled: bool, ranks: Ranks
) -> list[EpochRecord]:
    if ranks.is_main and not training.make_validation(images.val_crops, images.val_labels, 1, 0):
        sentence = (
            "the split 'val' has no 2 classes with 2 images each: the last epoch counts as best."
        )
        complain("Warning", sentence)
    n_images = len(images.train_labels)
    with progress_bar("images", shown=ranks.is_main) as progress:
        bar = progress.add_task("training", total=config.epochs * n_images)

        def on_epoch(records: list[EpochRecord], resumed: bool) -> None:
            if resumed and len(records) == config.epochs:
                say(f"All {config.epochs} epochs were done already in {out}.", progress)
            elif resumed and records:
                say(f"Going on after epoch {len(records)} of {config.epochs} in {out}.", progress)
            elif records:
                say(records[-1].sentence(config.epochs), progress)
            progress.update(bar, completed=len(records) * n_images)

        return training.train(
            images,
            config,
            out,
            ranks=ranks,
            compiled=compiled,
            on_progress=lambda n_done: progress.advance(bar, n_done),
            on_epoch=on_epoch,
        )


def _report(records: list[EpochRecord], out: Path) -> None:
    best = records[training.best_epoch(records) - 1]
    if best.val_accuracy is not None:
        stdout().print(
            f"Best of {len(records)} epochs: {best.epoch}, validation accuracy "
            f"{best.val_accuracy:.2f} ± {best.val_ci95:.2f} % (nearest prototype)",
            soft_wrap=True,
        )
    where = f"Checkpoints: {out / 'best'}, {out / 'last'}; log.jsonl and curve.png beside"
    stdout().print(where, soft_wrap=True)
