"""Episodic training: a backbone and the head of a few-shot system learn tasks of the train classes.

The loop is that of base training, ``epochs.py``. An epoch is a fixed number of episodes.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from infoshot.backbones import Backbone, Encoder, make_backbone
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.progress import SILENT, Progress
from infoshot.distributed import SINGLE_PROCESS, Ranks, synchronise_batch_norm
from infoshot.training.batches import AugmentedImages, move_if_it_fits
from infoshot.training.curve import CurveLabels
from infoshot.training.episodic.episode_batches import EpisodeBatch, EpisodeBatches, Samples
from infoshot.training.episodic.episodic_config import EpisodicConfig
from infoshot.training.episodic.episodic_network import EpisodicNetwork
from infoshot.training.episodic.registry import (
    make_head,
    resolve_head_settings,
    resolve_system,
)
from infoshot.training.episodic.scale_shift import add_scale_shift, fold_scale_shift
from infoshot.training.episodic.system_validation import (
    SystemValidation,
    make_system_validation,
)
from infoshot.training.epochs import run_training
from infoshot.training.optimizers import make_optimizer
from infoshot.training.problem import StepLoss, TrainingProblem
from infoshot.training.records import EpochRecord
from infoshot.training.training_images import TrainingImages


@dataclass(frozen=True, eq=False)
class TrainingFeatures:
    """The features of a frozen backbone for a training run, as ``TrainingImages`` has images.

    ``about`` names the data set and holds the digests of its splits. ``val_features`` are ``None``
    without validation classes.
    """

    train_features: Tensor
    train_labels: Tensor
    class_names: tuple[str, ...]
    val_features: Tensor | None
    val_labels: Tensor | None
    about: dict[str, str]


def run_episodes(
    data: TrainingImages | TrainingFeatures,
    config: EpisodicConfig,
    out: Path,
    *,
    init: Encoder | None = None,
    ranks: Ranks = SINGLE_PROCESS,
    compile: bool = False,
    tensorboard: bool = False,
    progress: Progress = SILENT,
) -> list[EpochRecord]:
    """Train a system on episodes, or resume an interrupted run.

    Parameters
    ----------
    data
        Decoded images; with a frozen backbone (``backbone_rate`` 0) its features of them.
    config
        The settings.
    out
        Folder of the run; ``best`` and ``last`` in it are checkpoints.
    init
        The network to start from; ``None``: random weights.
    ranks, compile, tensorboard, progress
        As in :func:`~infoshot.training.epochs.run_training`.

    Returns
    -------
    A record for every epoch, including those from before an interruption.

    Raises
    ------
    InvalidArgumentError
        If a setting is not allowed.
    DataError
        If there are too few classes or images, ``out`` holds a different run or another process
        writes to it, or the training diverges.

    Examples
    --------
    >>> from pathlib import Path
    >>> from infoshot.backbones import InputSpec
    >>> from infoshot.images import open_dataset
    >>> from infoshot.training import base_splits, load_training_images
    >>> splits = base_splits(open_dataset("folder", Path("data")))
    >>> images = load_training_images("folder", *splits, InputSpec(), n_workers=1)
    >>> config = EpisodicConfig(
    ...     backbone="conv4", system="protonet", n_way=2, n_query=2, epochs=1, episodes_per_epoch=2
    ... )
    >>> run_episodes(images, config, Path("runs/new"))[0].epoch
    1
    """
    return run_training(
        lambda: EpisodicTraining(data, config, ranks, init),
        config,
        out,
        ranks=ranks,
        compile=compile,
        tensorboard=tensorboard,
        progress=progress,
    )


@final
class EpisodicTraining(TrainingProblem[EpisodeBatch]):
    """Classification of the queries of episodes by the head of a system."""

    unit = "episodes"

    def __init__(
        self,
        data: TrainingImages | TrainingFeatures,
        config: EpisodicConfig,
        ranks: Ranks,
        init: Encoder | None,
    ) -> None:
        system, frozen = resolve_system(config.system), isinstance(data, TrainingFeatures)
        self._data, self._config, self._system = data, config, system
        if frozen != (config.backbone_rate == 0):
            raise InvalidArgumentError(
                "backbone_rate must be 0 for the features of a frozen backbone, and above 0 for "
                f"images; got {config.backbone_rate}."
            )
        torch.manual_seed(config.seed)
        backbone = make_backbone(config.backbone)
        head = make_head(system.name, backbone.feature_dim, len(data.class_names), config.head)
        about: dict[str, Any] = dict(data.about)
        if init is not None:
            backbone.load_state_dict(init.backbone.state_dict())
            about["init_sha256"] = init.digest
        self._learns_scales = system.trains == "scale-and-shift" and not frozen
        self._evaluates = frozen or self._learns_scales  # the backbone in training too
        if frozen:
            backbone.requires_grad_(False)
        elif self._learns_scales:
            add_scale_shift(backbone)
            _check_folding(backbone)
        if ranks.size > 1:
            synchronise_batch_norm(head, ranks.device)
            # A head that reads images normalises each task by its own statistics.
            if not self._evaluates and head.reads != "images":
                synchronise_batch_norm(backbone, ranks.device)
        self._episodic = EpisodicNetwork(backbone, head, on_features=frozen)
        super().__init__(
            config,
            ranks,
            self._episodic,
            about=about,
            class_names=data.class_names,
            labels=self._curve_labels(),
        )
        self._validation = self._make_validation()

    @property
    def units_per_epoch(self) -> int:
        """Episodes of an epoch."""
        return self._config.steps_per_epoch() * self._config.tasks_per_step

    @property
    def images_per_epoch(self) -> int:
        """Images of the episodes of an epoch."""
        config = self._config
        return self.units_per_epoch * config.n_way * (config.n_shot + config.n_query)

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer, with a learning rate of its own for the backbone."""
        network, config = self._episodic, self._config
        parts = ((network.backbone, config.backbone_rate), (network.head, 1.0))
        groups = [
            {"params": parameters, "factor": factor}
            for part, factor in parts
            if (parameters := [p for p in part.parameters() if p.requires_grad])
        ]
        return make_optimizer(config.optimizer, groups, config, self.ranks.device)

    def connect(self, *, compile: bool) -> None:
        """Prepare the episodes and the network."""
        samples, ranks = self._samples(compile), self.ranks
        self._batches = EpisodeBatches(samples, self._data.train_labels, self._config, ranks)
        if compile:
            self._episodic.compile_backbone()
        self._forward: nn.Module = self._episodic
        if ranks.size > 1:
            self._episodic.uses_all_parameters = True
            self._forward = DistributedDataParallel(self._episodic)

    def batches(self, epoch: int) -> Iterator[EpisodeBatch]:
        """Yield batches of episodes."""
        return self._batches.epoch(epoch)

    def loss(self, batch: EpisodeBatch) -> StepLoss:
        """Return the loss of a batch of episodes."""
        loss, n_correct = self._forward(batch)
        return StepLoss(loss, n_correct, batch.y_qry.numel(), len(batch.y_qry))

    def validate(self) -> tuple[float | None, float | None]:
        """Return the accuracy of the system on tasks of the validation classes."""
        if self._validation is None:
            return None, None
        return self._validation.accuracy(self._episodic, self.ranks)

    def train_mode(self) -> None:
        """Put the network into training mode, except a backbone whose own weights do not learn."""
        self._episodic.train()
        self._episodic.backbone.train(not self._evaluates)

    def backbone_weights(self) -> Mapping[str, Tensor]:
        """Return the weights of an ordinary backbone, with scales and shifts folded into them."""
        if not self._learns_scales:
            return super().backbone_weights()
        return fold_scale_shift(self._episodic.backbone).state_dict()

    def other_weights(self) -> dict[str, Tensor]:
        """Return the head; with scales and shifts the whole network, which folding has changed."""
        return self._episodic.state_dict() if self._learns_scales else super().other_weights()

    def load_weights(self, backbone: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        """Restore the weights of an interrupted run."""
        if not self._learns_scales:
            super().load_weights(backbone, others)
            return
        state = self._episodic.state_dict()
        self._episodic.load_state_dict({name: others[name] for name in state})

    def system(self) -> tuple[str, Mapping[str, Any]]:
        """Return name and head settings of the system."""
        return self._system.name, resolve_head_settings(self._system.name, self._config.head)

    def _samples(self, compile: bool) -> Samples:
        """Return the function that gives the samples of an episode."""
        data, device = self._data, self.ranks.device
        if isinstance(data, TrainingFeatures):
            features = move_if_it_fits(data.train_features, device)
            return lambda _, indices: features[indices.to(features.device)].to(device)
        spec = self._episodic.backbone.input_spec
        return AugmentedImages(data.train, spec, self._config, device, compile=compile)

    def _make_validation(self) -> SystemValidation | None:
        data, config = self._data, self._config
        samples = data.val_features if isinstance(data, TrainingFeatures) else data.val_crops
        if samples is not None:
            samples = move_if_it_fits(samples, self.ranks.device)
        return make_system_validation(
            samples,
            data.val_labels,
            config.val_tasks,
            config.seed,
            n_shot=config.shots_of_validation(),
            n_way=config.head.get("n_way"),
        )

    def _curve_labels(self) -> CurveLabels:
        config = self._config
        return CurveLabels(
            f"{self._system.title}, {config.backbone}, {self._data.about['dataset']}",
            "training loss",
            f"train classes, {config.n_way}-way {config.n_shot}-shot episodes",
            f"validation classes, {config.shots_of_validation()}-shot tasks",
        )


def _check_folding(backbone: Backbone) -> None:
    """Raise ``InvalidArgumentError`` before the training if scales and shifts cannot be folded."""
    probe = deepcopy(backbone)
    with torch.no_grad():
        for parameter in probe.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1)
    fold_scale_shift(probe)
