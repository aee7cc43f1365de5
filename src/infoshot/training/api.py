"""Train a backbone on a data set: the function behind ``infoshot train``."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoshot.backbones import InputSpec, make_backbone
from infoshot.backbones.checkpoint_description import BEST, LAST
from infoshot.core import checks
from infoshot.core.atomic import check_writable, make_folder
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.progress import Progress, ProgressLike, open_progress
from infoshot.distributed import join_processes
from infoshot.images import open_dataset
from infoshot.images.broken import drop_broken
from infoshot.images.datasets import ImageSplit
from infoshot.images.decoding import decode_workers
from infoshot.training.base_classifier import load_teacher
from infoshot.training.config import TrainConfig
from infoshot.training.config_file import resolve_config
from infoshot.training.curve import CURVE_NAME
from infoshot.training.epochs import CONFIG_NAME, run_epochs
from infoshot.training.events import summary_writer
from infoshot.training.records import CSV_NAME, LOG_NAME, EpochRecord, best_epoch
from infoshot.training.training_images import TrainingImages, base_splits, load_training_images
from infoshot.training.validation import make_validation


@dataclass(frozen=True)
class TrainResult:
    """A finished training run.

    Parameters
    ----------
    config
        The settings that were used.
    records
        The results of every epoch.
    best_epoch
        The epoch of the checkpoint ``best``, counted from 1.
    best, last
        Folders of the checkpoints of the best and of the last epoch.
    log, csv
        The records as JSON lines, after a line with settings and machine, and as CSV.
    curve
        Plot of loss and accuracies.
    config_file
        The settings as TOML; ``train(..., config=config_file)`` uses them again.
    """

    config: TrainConfig
    records: tuple[EpochRecord, ...]
    best_epoch: int
    best: Path
    last: Path
    log: Path
    csv: Path
    curve: Path
    config_file: Path


def train(
    dataset: str,
    root: str | os.PathLike[str],
    backbone: str,
    out: str | os.PathLike[str],
    *,
    recipe: str = "paper",
    config: TrainConfig | str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    teacher: str | os.PathLike[str] | None = None,
    device: str | None = None,
    compile: bool = False,
    splits: str | os.PathLike[str] | None = None,
    skip_broken: bool = False,
    tensorboard: bool = False,
    progress: ProgressLike = None,
) -> TrainResult:
    """Train a backbone on the train classes of a data set.

    The same call resumes an interrupted run. Under ``torchrun`` the processes share every batch.

    Parameters
    ----------
    dataset
        ``mini-imagenet``, ``tiered-imagenet``, ``cub``, or ``folder`` for any class folders.
    root
        Folder with the images.
    backbone
        Name of a network, or ``package.module:Name`` of a callable that returns a
        ``torch.nn.Module`` mapping ``(batch, 3, height, width)`` to ``(batch, dim)``.
    out
        Folder of the run.
    recipe
        ``paper``: the published settings; ``small``: for sets of a few thousand images, such as
        CUB; ``strong``: with rotation prediction and manifold mixup.
    config
        Settings: a ``TrainConfig``, which replaces the recipe, or the path of a TOML file with some
        of its fields, which replace those of the recipe.
    settings
        Fields of ``TrainConfig`` by name; they replace those of ``config`` and the arguments below.
    epochs, batch_size, lr, seed
        Replace the fields ``epochs``, ``batch_size``, ``learning_rate`` and ``seed`` of ``config``.
    teacher
        Checkpoint of a network trained on the same classes, from which this one is distilled.
    device
        ``cpu``, ``cuda``, ``cuda:1``, ...; ``None``: ``cuda`` if there is a GPU, else ``cpu``.
    compile
        Whether to compile the network with ``torch.compile``.
    splits
        JSON file with the classes of each split; ``None``: the published split, or what the folders
        say.
    skip_broken
        Whether to skip images that cannot be decoded, with a warning, instead of raising.
    tensorboard
        Whether to write TensorBoard event files to ``out/tensorboard``.
    progress
        See :mod:`infoshot.core.progress`.

    Returns
    -------
    The records, the best epoch and the paths of the files.

    Raises
    ------
    InvalidArgumentError
        If an argument or a setting is not allowed.
    DataError
        If there are no usable images, ``out`` holds a different run, or the training diverges.
    MissingDependencyError
        If ``tensorboard`` is True and the package is not installed.

    Examples
    --------
    >>> from infoshot.training import train
    >>> result = train("mini-imagenet", "data/mini-imagenet", "resnet18", "runs/resnet18",
    ...                epochs=30, settings={"schedule": "cosine"})  # doctest: +SKIP
    >>> result.best_epoch, result.records[-1].val_accuracy  # doctest: +SKIP
    """
    root, out = Path(root), Path(out)
    if lr is not None:
        checks.positive("lr", lr)  # the field has another name
    options = {"epochs": epochs, "batch_size": batch_size, "learning_rate": lr, "seed": seed}
    resolved = resolve_config(backbone, config, options, settings, recipe)
    spec = make_backbone(backbone).input_spec
    taught_by = None if teacher is None else load_teacher(Path(teacher), resolved)
    if out.resolve() == root.resolve():
        raise InvalidArgumentError("out must be another folder than root, which holds the images.")
    if tensorboard:
        summary_writer()
    with (
        join_processes(device) as ranks,
        open_progress(progress, shown=ranks.is_main) as shown,
    ):
        resolved.check_processes(ranks.size)
        make_folder(out)
        check_writable(out / LOG_NAME)
        found = base_splits(open_dataset(dataset, root, Path(splits) if splits else None))
        if skip_broken:
            found = _drop_broken(*found, warn=ranks.is_main, progress=shown)
        images = _load_images(dataset, *found, spec, warn=ranks.is_main, progress=shown)
        records = run_epochs(
            images,
            resolved,
            out,
            teacher=taught_by,
            ranks=ranks,
            compile=compile,
            tensorboard=tensorboard,
            progress=shown,
        )
    return TrainResult(
        config=resolved,
        records=tuple(records),
        best_epoch=best_epoch(records),
        best=out / BEST,
        last=out / LAST,
        log=out / LOG_NAME,
        csv=out / CSV_NAME,
        curve=out / CURVE_NAME,
        config_file=out / CONFIG_NAME,
    )


def _drop_broken(
    train_split: ImageSplit, val_split: ImageSplit | None, *, warn: bool, progress: Progress
) -> tuple[ImageSplit, ImageSplit | None]:
    train_split = drop_broken(train_split, warn=warn, progress=progress)
    if val_split is not None:
        val_split = drop_broken(val_split, warn=warn, progress=progress)
    return train_split, val_split


def _load_images(
    dataset: str,
    train_split: ImageSplit,
    val_split: ImageSplit | None,
    spec: InputSpec,
    *,
    warn: bool,
    progress: Progress,
) -> TrainingImages:
    """Decode the images; warn if they allow no validation."""
    images = load_training_images(
        dataset, train_split, val_split, spec, n_workers=decode_workers(), progress=progress
    )
    if warn and make_validation(images.val_crops, images.val_labels, 1, 0) is None:
        warnings.warn(
            "the split 'val' has fewer than 2 classes of 2 images, so there is no validation and "
            "the last epoch counts as the best.",
            stacklevel=3,
        )
    return images
