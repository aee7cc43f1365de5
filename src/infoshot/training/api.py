"""Train a backbone on a data set: the function behind ``infoshot train``."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from infoshot.backbones import make_backbone
from infoshot.backbones.checkpoint_description import BEST, CONFIG_NAME, LAST
from infoshot.core import checks
from infoshot.core.atomic import check_writable, output_folder
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.progress import Progress, ProgressLike, open_progress
from infoshot.distributed import join_processes
from infoshot.images import open_dataset
from infoshot.images.broken import drop_broken
from infoshot.images.datasets import ImageSplit
from infoshot.images.decoding import decode_workers
from infoshot.training.base_classifier import Teacher, load_teacher
from infoshot.training.base_training import run_epochs
from infoshot.training.config import TrainConfig
from infoshot.training.config_file import resolve_config
from infoshot.training.curve import CURVE_NAME
from infoshot.training.episodic.episodic_config import EpisodicConfig
from infoshot.training.episodic.episodic_training import TrainingFeatures, run_episodes
from infoshot.training.episodic.system_run import (
    SystemPlan,
    load_training_features,
    plan_system,
)
from infoshot.training.events import summary_writer
from infoshot.training.records import CSV_NAME, LOG_NAME, EpochRecord, best_epoch
from infoshot.training.training_images import TrainingImages, base_splits, load_training_images
from infoshot.training.validation import choose_tasks


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

    Examples
    --------
    >>> from infoshot import train
    >>> result = train("folder", "data", "conv4", "runs/conv4", epochs=1)
    >>> len(result.records), result.best_epoch, result.best.as_posix()
    (1, 1, 'runs/conv4/best')
    """

    config: TrainConfig | EpisodicConfig
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
    system: str | None = None,
    init: str | os.PathLike[str] | None = None,
    recipe: str = "paper",
    config: TrainConfig | EpisodicConfig | str | os.PathLike[str] | None = None,
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
    """Train a backbone, or a few-shot system, on the train classes of a data set.

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
    system
        Few-shot system to train on episodes, such as ``protonet``, or ``package.module:Name`` of a
        class derived from ``Head``; ``None``: base training. ``infoshot systems`` lists them.
    init
        Checkpoint that the backbone of a system starts from: a folder, or a PyTorch file of
        weights. Many systems start from a base-trained network.
    recipe
        For base training. ``paper``: the published settings; ``small``: for sets of a few thousand
        images, such as CUB; ``strong``: with rotation prediction and manifold mixup.
        ``baseline++``, ``neg-cosine``, ``cc-rot``, ``bd-cspn`` and ``distill``: the base trainings
        of these systems, see ``recipes.py``.
    config
        Settings: a ``TrainConfig``, which replaces the recipe, or the path of a TOML file with some
        of its fields, which replace those of the recipe. For a system an ``EpisodicConfig``, or a
        file with its fields, which replace the published settings of the system.
    settings
        Fields of ``TrainConfig`` or ``EpisodicConfig`` by name, and ``head.NAME`` for those of a
        system's head; they replace those of ``config`` and the arguments below.
    epochs, batch_size, lr, seed
        Replace the fields ``epochs``, ``batch_size`` (of a system: ``tasks_per_step``),
        ``learning_rate`` and ``seed`` of ``config``.
    teacher
        Checkpoint of a network trained on the same classes, from which this one is distilled; not
        for systems.
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
    >>> from infoshot import train
    >>> settings = {"schedule": "cosine"}
    >>> result = train("folder", "data", "conv4", "runs/cosine", epochs=1, settings=settings)
    >>> result.best_epoch, len(result.records)
    (1, 1)

    A few-shot system that starts from this network:

    >>> settings = {"n_way": 2, "n_query": 2, "episodes_per_epoch": 2}
    >>> result = train(
    ...     "folder", "data", "conv4", "runs/system",
    ...     system="protonet", init="runs/cosine", epochs=1, settings=settings,
    ... )
    >>> result.config.system
    'protonet'
    """
    root, out = Path(root), Path(out)
    if lr is not None:
        checks.positive("lr", lr)  # the field has another name
    options: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": lr,
        "seed": seed,
    }
    job: _BaseJob | _SystemJob
    if system is None:
        job = _plan_base(backbone, config, options, settings, recipe, init, teacher)
    else:
        _check_system_arguments(recipe, teacher)
        options["tasks_per_step"] = options.pop("batch_size")
        job = _SystemJob(
            plan_system(system, backbone, init, config=config, options=options, settings=settings)
        )
    if out.resolve() == root.resolve():
        raise InvalidArgumentError("out must be another folder than root, which holds the images.")
    if tensorboard:
        summary_writer()
    with (
        join_processes(device) as ranks,
        open_progress(progress, shown=ranks.is_main) as shown,
    ):
        job.config.check_processes(ranks.size)
        with output_folder(out):
            check_writable(out / LOG_NAME)
            found = base_splits(open_dataset(dataset, root, Path(splits) if splits else None))
            if skip_broken:
                found = _drop_broken(*found, warn=ranks.is_main, progress=shown)
            records = job.run(
                dataset, *found, out,
                {"ranks": ranks, "compile": compile, "tensorboard": tensorboard, "progress": shown},
            )  # fmt: skip
    return TrainResult(
        config=job.config,
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


@dataclass(frozen=True, eq=False)
class _BaseJob:
    """Base training with these settings, and a teacher if there is one."""

    config: TrainConfig
    teacher: Teacher | None

    def run(
        self,
        dataset: str,
        train_split: ImageSplit,
        val_split: ImageSplit | None,
        out: Path,
        loop: Mapping[str, Any],
    ) -> list[EpochRecord]:
        """Decode the images and train; ``loop`` holds the arguments of the loop."""
        images = _load_images(dataset, train_split, val_split, self.config.backbone, loop)
        if loop["ranks"].is_main:
            _warn_without_validation(val_split, n_shot=1)
        return run_epochs(images, self.config, out, teacher=self.teacher, **loop)


@dataclass(frozen=True, eq=False)
class _SystemJob:
    """Episodic training as planned."""

    plan: SystemPlan

    @property
    def config(self) -> EpisodicConfig:
        """The settings."""
        return self.plan.config

    def run(
        self,
        dataset: str,
        train_split: ImageSplit,
        val_split: ImageSplit | None,
        out: Path,
        loop: Mapping[str, Any],
    ) -> list[EpochRecord]:
        """Decode the images, or compute their features, and train."""
        config, init = self.config, self.plan.init
        self.plan.check_split(train_split)
        data: TrainingImages | TrainingFeatures
        if self.plan.is_frozen and init is not None:
            data = load_training_features(
                dataset, train_split, val_split, init,
                ranks=loop["ranks"], progress=loop["progress"],
            )  # fmt: skip
        else:
            data = _load_images(dataset, train_split, val_split, config.backbone, loop)
        if loop["ranks"].is_main:
            shots = config.shots_of_validation()
            _warn_without_validation(val_split, n_shot=shots, n_way=config.head.get("n_way"))
        return run_episodes(data, config, out, init=init, **loop)


def _plan_base(
    backbone: str,
    config: TrainConfig | EpisodicConfig | str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
    recipe: str,
    init: object,
    teacher: str | os.PathLike[str] | None,
) -> _BaseJob:
    """Check everything that can be known before images are read."""
    if init is not None:
        raise InvalidArgumentError(
            "init must be given together with system=NAME: base training starts from random "
            "weights."
        )
    if isinstance(config, EpisodicConfig):
        raise InvalidArgumentError(
            f"config holds settings of the system {config.system}; pass system={config.system} too."
        )
    resolved = resolve_config(backbone, config, options, settings, recipe)
    make_backbone(backbone)  # raises for an unknown name
    taught_by = None if teacher is None else load_teacher(Path(teacher), resolved)
    return _BaseJob(resolved, taught_by)


def _check_system_arguments(recipe: str, teacher: object) -> None:
    """Raise if an argument of base training was given for a system."""
    if recipe != "paper":
        raise InvalidArgumentError(
            "recipe must be 'paper' with a system, which has published settings of its own; "
            f"got '{recipe}'."
        )
    if teacher is not None:
        raise InvalidArgumentError(
            "teacher must be left out for a system, which is not distilled; to start from a "
            "trained network, pass init=CHECKPOINT."
        )


def _load_images(
    dataset: str,
    train_split: ImageSplit,
    val_split: ImageSplit | None,
    backbone: str,
    loop: Mapping[str, Any],
) -> TrainingImages:
    """Decode the images for a network."""
    return load_training_images(
        dataset,
        train_split,
        val_split,
        make_backbone(backbone).input_spec,
        n_workers=decode_workers(),
        progress=loop["progress"],
    )


def _warn_without_validation(
    split: ImageSplit | None, *, n_shot: int, n_way: int | None = None
) -> None:
    """Warn if the validation classes allow no validation."""
    labels = None if split is None else torch.tensor(split.labels)
    if labels is None or choose_tasks(labels, 0, n_shot=n_shot, n_way=n_way) is None:
        warnings.warn(
            f"the split 'val' has fewer than {n_way or 2} classes of {n_shot + 1} images, so there "
            "is no validation and the last epoch counts as the best.",
            stacklevel=4,
        )
