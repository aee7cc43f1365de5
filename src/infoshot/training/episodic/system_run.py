"""Train a few-shot system on a data set: its settings, the network it starts from, its data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from infoshot.backbones import Backbone, Encoder, make_backbone, open_checkpoint
from infoshot.backbones.encoders import is_weight_file
from infoshot.core.cache_folder import default_cache_folder
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.progress import SILENT, Progress
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import Extraction, encoder_provenance, extract_split
from infoshot.images import ImageSplit
from infoshot.training.episodic.episode_batches import make_sampler
from infoshot.training.episodic.episodic_config import EpisodicConfig, resolve_episodic_config
from infoshot.training.episodic.episodic_training import TrainingFeatures
from infoshot.training.episodic.head import Head
from infoshot.training.episodic.registry import make_head, resolve_system
from infoshot.training.run_config import RunConfig


@dataclass(frozen=True, eq=False)
class SystemPlan:
    """How a system is trained: its settings, and the network it starts from, if any."""

    config: EpisodicConfig
    init: Encoder | None

    @property
    def is_frozen(self) -> bool:
        """Whether the backbone stays as it is, so that episodes are drawn from its features."""
        return self.config.backbone_rate == 0

    def check_split(self, train: ImageSplit) -> None:
        """Raise ``DataError`` if episodes cannot be drawn from the train classes."""
        names = tuple(train.class_names)
        make_sampler(torch.tensor(train.labels), self.config.task_spec(), names)


def plan_system(
    system: str,
    backbone: str,
    init: str | os.PathLike[str] | None,
    *,
    config: RunConfig | str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> SystemPlan:
    """Check everything that can be known before images are read.

    Parameters
    ----------
    system, backbone
        Name of the system and of the network.
    init
        Checkpoint that the backbone starts from.
    config, options, settings
        As in :func:`~infoshot.training.episodic.episodic_config.resolve_episodic_config`.

    Raises
    ------
    InvalidArgumentError
        If a setting is not allowed, or the system needs another ``init``.
    DataError
        If a file cannot be read.
    """
    if isinstance(config, RunConfig) and not isinstance(config, EpisodicConfig):
        raise InvalidArgumentError(
            f"config must be an EpisodicConfig with a system; got {type(config).__name__}."
        )
    resolved = resolve_episodic_config(system, backbone, config, options, settings)
    with torch.random.fork_rng(devices=[]):
        network = make_backbone(backbone)
        head = make_head(system, network.feature_dim, 2, resolved.head)
    if init is None and resolve_system(system).needs_init:
        raise InvalidArgumentError(
            f"init must be the checkpoint of a trained {backbone} for {system}, which starts from "
            "one; train it first, without a system."
        )
    if resolved.backbone_rate == 0:
        _check_frozen(system, head, init)
    elif head.reads == "maps" and type(network).maps is Backbone.maps:
        network.maps(torch.empty(0))  # raises, since there are none
    return SystemPlan(resolved, None if init is None else _open_init(Path(init), backbone))


def _check_frozen(system: str, head: Head, init: object) -> None:
    """Raise if a system cannot be trained over the features of a frozen backbone."""
    if init is None:
        raise InvalidArgumentError(
            "init must be the checkpoint of a trained network if backbone_rate is 0, which keeps "
            "the backbone as it is."
        )
    if head.reads != "vectors":
        raise InvalidArgumentError(
            f"backbone_rate must be above 0 for {system}, which reads {head.reads}, not features; "
            "got 0."
        )
    if not list(head.parameters()):
        raise InvalidArgumentError(
            f"backbone_rate must be above 0 for {system}, whose head has nothing to learn; got 0."
        )


def _open_init(init: Path, backbone: str) -> Encoder:
    encoder = open_checkpoint(init, backbone if is_weight_file(init) else None)
    if encoder.backbone_name != backbone:
        raise InvalidArgumentError(
            f"init must be a checkpoint of {backbone}; {init} is one of {encoder.backbone_name}."
        )
    return encoder


def load_training_features(
    dataset: str,
    train: ImageSplit,
    val: ImageSplit | None,
    encoder: Encoder,
    *,
    ranks: Ranks = SINGLE_PROCESS,
    progress: Progress = SILENT,
) -> TrainingFeatures:
    """Compute the features of both splits, or read them from the user's cache.

    Raises
    ------
    DataError
        If an image cannot be read; the message names it.
    """
    how = Extraction(device=ranks.device)
    provenance = encoder_provenance(encoder, how)
    cache = FeatureCache(default_cache_folder(), provenance, encoder.backbone.feature_dim)
    tables = [
        extract_split(dataset, split, encoder, how, cache=cache, ranks=ranks, progress=progress)
        for split in (train, val)
        if split is not None
    ]
    about = {"dataset": dataset, "train_sha256": train.digest()}
    if val is not None:
        about["val_sha256"] = val.digest()
    rest = tables[1] if len(tables) > 1 else None
    return TrainingFeatures(
        tables[0].features,
        tables[0].labels,
        tables[0].class_names,
        None if rest is None else rest.features,
        None if rest is None else rest.labels,
        about,
    )
