"""Base training: a backbone and a linear classifier learn the train classes."""

from collections.abc import Iterator
from pathlib import Path
from typing import final

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from infoshot.backbones import make_backbone
from infoshot.core.progress import SILENT, Progress
from infoshot.distributed import SINGLE_PROCESS, Ranks, synchronise_batch_norm
from infoshot.training.base_classifier import BaseClassifier, Teacher, make_classifier
from infoshot.training.batches import Batches, move_if_it_fits
from infoshot.training.config import TrainConfig
from infoshot.training.curve import CurveLabels
from infoshot.training.epochs import run_training
from infoshot.training.losses import Network, TrainingLoss
from infoshot.training.manifold_mixup import ManifoldMixup
from infoshot.training.optimizers import make_optimizer
from infoshot.training.problem import StepLoss, TrainingProblem
from infoshot.training.records import EpochRecord
from infoshot.training.training_images import TrainingImages
from infoshot.training.validation import make_validation


def run_epochs(
    images: TrainingImages,
    config: TrainConfig,
    out: Path,
    *,
    teacher: Teacher | None = None,
    ranks: Ranks = SINGLE_PROCESS,
    compile: bool = False,
    tensorboard: bool = False,
    progress: Progress = SILENT,
) -> list[EpochRecord]:
    """Train on decoded images, or resume an interrupted run.

    Parameters
    ----------
    images, config
        The images and the settings.
    out
        Folder of the run; ``best`` and ``last`` in it are checkpoints.
    teacher
        A network trained on the same classes, from which to distil.
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
        If ``out`` holds a different run or another process writes to it, or if the training
        diverges.

    Examples
    --------
    >>> from pathlib import Path
    >>> from infoshot.backbones import InputSpec
    >>> from infoshot.images import open_dataset
    >>> from infoshot.training import base_splits, load_training_images
    >>> splits = base_splits(open_dataset("folder", Path("data")))
    >>> images = load_training_images("folder", *splits, InputSpec(), n_workers=1)
    >>> records = run_epochs(images, TrainConfig(backbone="conv4", epochs=1), Path("runs/new"))
    >>> records[0].epoch
    1
    """
    return run_training(
        lambda: BaseTraining(images, config, ranks, teacher),
        config,
        out,
        ranks=ranks,
        compile=compile,
        tensorboard=tensorboard,
        progress=progress,
    )


@final
class BaseTraining(TrainingProblem[tuple[Tensor, Tensor]]):
    """Classification of the train classes, as published for TIM."""

    unit = "images"

    def __init__(
        self, images: TrainingImages, config: TrainConfig, ranks: Ranks, teacher: Teacher | None
    ) -> None:
        n_classes = len(images.class_names)
        self._images, self._config = images, config
        self._smoothing = config.smoothing_over_all(n_classes)
        torch.manual_seed(config.seed)
        backbone = make_backbone(config.backbone)
        head = make_classifier(config, backbone.feature_dim, n_classes)
        predicts_angle = config.rotation_weight > 0
        model = BaseClassifier(backbone, n_classes, predicts_angle=predicts_angle, head=head)
        about = dict(images.about)
        self._teacher: BaseClassifier | None = None
        if teacher is not None:
            teacher.check_classes(images.class_names)
            self._teacher = teacher.network
            self._teacher.to(device=torch.device(ranks.device), memory_format=torch.channels_last)  # type: ignore[call-overload]
            about["teacher_sha256"] = teacher.digest
        if ranks.size > 1:
            synchronise_batch_norm(model, ranks.device)
        labels = CurveLabels(
            f"{config.backbone}, {images.about['dataset']}",
            "training loss (smoothed cross-entropy)",
            "train classes, augmented images",
            "validation classes, 1-shot nearest prototype",
        )
        super().__init__(
            config, ranks, model, about=about, class_names=images.class_names, labels=labels
        )
        crops = images.val_crops
        if crops is not None:
            crops = move_if_it_fits(crops, ranks.device)
        self._validation = make_validation(crops, images.val_labels, config.val_tasks, config.seed)

    @property
    def units_per_epoch(self) -> int:
        """Images of an epoch."""
        return self._batches.n_images

    @property
    def images_per_epoch(self) -> int:
        """Images of an epoch."""
        return self._batches.n_images

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return stochastic gradient descent over all parameters."""
        groups = [{"params": list(self.network.parameters())}]
        return make_optimizer("sgd", groups, self._config, self.ranks.device)

    def connect(self, *, compile: bool) -> None:
        """Prepare the batches and the loss."""
        spec, ranks = self.network.backbone.input_spec, self.ranks
        self._batches = Batches(self._images, spec, self._config, ranks=ranks, compile=compile)
        self._forward: Network = self.network
        teacher: Network | None = self._teacher
        self._mixup: ManifoldMixup | None = None
        if self._config.mixup:
            self._mixup = ManifoldMixup(self.network.backbone, self._config.mixup, ranks.device)
        if ranks.size > 1:
            self._forward = DistributedDataParallel(self.network)
        if compile:
            self._forward = torch.compile(self._forward)
            teacher = None if teacher is None else torch.compile(teacher)
        self._loss = TrainingLoss(self._config, self._smoothing, self._mixup, teacher)

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield network inputs and labels."""
        if self._mixup is not None:
            self._mixup.active = self._config.mixes_in(epoch)
        return self._batches.epoch(epoch)

    def loss(self, batch: tuple[Tensor, Tensor]) -> StepLoss:
        """Return the loss of a batch."""
        loss, correct = self._loss(self._forward, *batch)
        return StepLoss(loss, correct, len(batch[1]), len(batch[1]))

    def validate(self) -> tuple[float | None, float | None]:
        """Return the accuracy of the nearest prototype on tasks of the validation classes."""
        if self._validation is None:
            return None, None
        return self._validation.accuracy(self.network.backbone, self.ranks)
