"""Base training: epochs of gradient descent that continue where they were interrupted."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from infoshot.backbones import Backbone, make_backbone
from infoshot.distributed import ALONE, Ranks, synchronised_batch_norm
from infoshot.errors import DataError
from infoshot.training.batches import Batches
from infoshot.training.config import TrainConfig
from infoshot.training.curve import plot_curve
from infoshot.training.images import TrainingImages
from infoshot.training.losses import smoothed_cross_entropy
from infoshot.training.records import EpochRecord
from infoshot.training.snapshot import Snapshot, read_snapshot
from infoshot.training.validation import Validation

CURVE_NAME = "curve.png"

EpochHook = Callable[[list[EpochRecord], bool], None]


@final
class Classifier(nn.Module):
    """A backbone with a linear layer over its features."""

    def __init__(self, backbone: Backbone, n_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.feature_dim, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape ``(batch, class)``."""
        return self.head(self.backbone(images))  # type: ignore[no-any-return]


def train(
    images: TrainingImages,
    config: TrainConfig,
    out: Path,
    *,
    ranks: Ranks = ALONE,
    compiled: bool = False,
    on_progress: Callable[[int], None] = lambda n_images: None,
    on_epoch: EpochHook = lambda records, resumed: None,
) -> list[EpochRecord]:
    """Train, or go on where the same training was interrupted.

    Parameters
    ----------
    images, config
        What to learn from, and how.
    out
        Folder of the run; ``best`` and ``last`` in it are checkpoints.
    ranks
        This process among the others. All of them must see ``out``; the main one writes.
    compiled
        Whether to compile the network; the first epoch then takes longer, the others less.
    on_progress, on_epoch
        Called in the main process: with the images seen since the last call; with all records
        after an epoch and ``False``, and once at the beginning, with those of an interrupted run
        and ``True``.

    Returns
    -------
    A record for every epoch.

    Raises
    ------
    DataError
        If ``out`` holds another training, or the loss is no longer a number.
    """
    config.validate()
    # What happens in here must not depend on, or change, the caller's random numbers.
    forked = torch.random.fork_rng(_cuda_devices(ranks))
    with forked, torch.backends.cudnn.flags(enabled=True, benchmark=True):
        run = _Run(images, config, out, ranks, compiled)
        run.resume()
        if ranks.is_main:
            on_epoch(run.records, True)
        # Files are written while the next epoch learns; one at a time, so a kill still costs one
        # epoch beyond the one under way at most.
        with ThreadPoolExecutor(1) as writer:
            writing = None
            while len(run.records) < config.epochs:
                run.epoch(on_progress if ranks.is_main else lambda n_images: None)
                if ranks.is_main:
                    if writing is not None:
                        writing.result()
                    writing = writer.submit(run.snapshot().write, out, ranks)
                    on_epoch(run.records, False)
            if writing is not None:
                writing.result()
    if ranks.is_main:
        plot_curve(run.records, out / CURVE_NAME, f"{config.backbone}, {images.about['dataset']}")
    return run.records


class _Run:
    """A training under way."""

    def __init__(
        self, images: TrainingImages, config: TrainConfig, out: Path, ranks: Ranks, compiled: bool
    ) -> None:
        self.images, self.config, self.out, self.ranks = images, config, out, ranks
        self.records: list[EpochRecord] = []
        torch.manual_seed(config.seed)
        backbone = make_backbone(config.backbone)
        self.model = Classifier(backbone, len(images.class_names))
        if ranks.size > 1:
            synchronised_batch_norm(self.model)
        self.model.to(device=torch.device(ranks.device), memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=ranks.device.startswith("cuda") or None,
        )
        self.batches = Batches(
            images,
            backbone.input_spec,
            batch_size=config.images_per_step(),
            seed=config.seed,
            ranks=ranks,
            compiled=compiled,
        )
        self.network: Callable[[Tensor], Tensor] = self.model
        if ranks.size > 1:
            self.network = DistributedDataParallel(self.model)
        if compiled:
            self.network = torch.compile(self.network)
        self.validation = _validation(images, config, ranks)

    def resume(self) -> None:
        """Take up what is in the folder of the run, if anything."""
        snapshot = read_snapshot(self.out, self._about())
        if snapshot is None:
            return
        model, tensors = self.model, snapshot.tensors
        model.backbone.load_state_dict(snapshot.weights)
        model.head.load_state_dict(
            {name: tensors[f"head.{name}"] for name in model.head.state_dict()}
        )
        for name, parameter in model.named_parameters():
            if f"momentum.{name}" in tensors:
                momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
                self.optimizer.state[parameter]["momentum_buffer"] = momentum
        self.records = list(snapshot.records)

    def snapshot(self) -> Snapshot:
        """Copy all that the next epoch needs; the training may go on meanwhile."""
        model = self.model
        tensors = {f"head.{name}": value for name, value in model.head.state_dict().items()}
        for name, parameter in model.named_parameters():
            momentum = self.optimizer.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        return Snapshot(
            self.config.backbone,
            self._about(),
            self.images.class_names,
            _copies(model.backbone.state_dict()),
            _copies(tensors),
            tuple(self.records),
        )

    def epoch(self, on_progress: Callable[[int], None]) -> None:
        """One pass over the training images, and a look at the validation classes."""
        number, device = len(self.records), self.ranks.device
        # Dropout: its own numbers in every epoch and process, the same after a restart.
        torch.manual_seed((self.config.seed << 24) + (number << 12) + self.ranks.rank)
        rate = self.config.learning_rate_at(number)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        totals = torch.zeros(2, dtype=torch.float64, device=device)
        start = time.perf_counter()
        for x, y in self.batches.epoch(number):
            totals += self._step(x, y)
            on_progress(len(y) * self.ranks.size)
        n_images = self.batches.n_images
        loss, accuracy = (self.ranks.sum(totals) / n_images).tolist()
        learned = time.perf_counter() - start
        if not math.isfinite(loss):
            raise DataError(
                f"the loss is no longer a number in epoch {number + 1}; a lower learning rate "
                f"than {self.config.learning_rate:g} may help."
            )
        val: tuple[float | None, float | None] = (None, None)
        if self.validation is not None:
            val = self.validation.accuracy(self.model.backbone, self.ranks)
        seconds = time.perf_counter() - start
        self.records.append(
            EpochRecord(number + 1, rate, loss, 100 * accuracy, *val, n_images / learned, seconds)
        )

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        """Learn from a batch; the sums of loss and of right answers."""
        kind = x.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            logits = self.network(x)
        logits = logits.float()
        loss = smoothed_cross_entropy(logits, y, self.config.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        right = (logits.argmax(1) == y).sum()
        return torch.stack((loss.detach().double() * len(y), right.double()))

    def _about(self) -> dict[str, Any]:
        config = dataclasses.asdict(self.config)
        config["batch_size"] = self.config.images_per_step()
        config["drops"] = list(self.config.drops)
        return {**config, **self.images.about}


def _validation(images: TrainingImages, config: TrainConfig, ranks: Ranks) -> Validation | None:
    if images.val_crops is None or images.val_labels is None:
        return None
    crops = images.val_crops.to(ranks.device)
    validation = Validation(crops, images.val_labels, config.val_tasks, config.seed)
    return validation if validation.possible() else None


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies where the tensors are: whoever writes them waits for them, not the training."""
    return {name: value.detach().clone() for name, value in tensors.items()}


def _cuda_devices(ranks: Ranks) -> list[str]:
    return [ranks.device] if ranks.device.startswith("cuda") else []
