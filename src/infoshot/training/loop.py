"""Base training: epochs of gradient descent, kept so that a kill costs one epoch at most.

After every epoch ``last/`` is replaced: weights, classifier, momentum and the record of all epochs
in one move. ``best/`` is written before it, so whatever happens in between is done again, the same.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from infoshot.backbones import Backbone, make_backbone
from infoshot.backbones.checkpoints import (
    DESCRIPTION_NAME,
    TrainingState,
    load_checkpoint,
    load_training,
    save_checkpoint,
)
from infoshot.distributed import ALONE, Ranks, synchronised_batch_norm
from infoshot.errors import DataError
from infoshot.training.batches import Batches
from infoshot.training.config import TrainConfig
from infoshot.training.curve import plot_curve
from infoshot.training.images import TrainingImages
from infoshot.training.losses import smoothed_cross_entropy
from infoshot.training.records import EpochRecord, best_epoch, write_log
from infoshot.training.validation import Validation

BEST, LAST, LOG_NAME, CURVE_NAME = "best", "last", "log.jsonl", "curve.png"

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
        while len(run.records) < config.epochs:
            run.epoch(on_progress if ranks.is_main else lambda n_images: None)
            if ranks.is_main:
                run.save()
                on_epoch(run.records, False)
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
        folder = self.out / LAST
        if not (folder / DESCRIPTION_NAME).exists():
            return
        checkpoint, state = load_checkpoint(folder), load_training(folder)
        difference = _difference(checkpoint.config, self._about())
        if difference:
            raise DataError(
                f"{self.out}: holds another training ({difference}); choose another folder, or "
                "remove this one to start anew."
            )
        self.model.backbone.load_state_dict(checkpoint.backbone.state_dict())
        self.model.head.load_state_dict(
            {name: state.tensors[f"head.{name}"] for name in self.model.head.state_dict()}
        )
        for name, parameter in self.model.named_parameters():
            if f"momentum.{name}" in state.tensors:
                momentum = torch.empty_like(parameter).copy_(state.tensors[f"momentum.{name}"])
                self.optimizer.state[parameter]["momentum_buffer"] = momentum
        self.records = [EpochRecord(**record) for record in state.facts["epochs"]]

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

    def save(self) -> None:
        """Write the checkpoints; the last one carries what the next epoch needs."""
        about, names = self._about(), self.images.class_names
        model, config = self.model, self.config
        if best_epoch(self.records) == len(self.records):
            save_checkpoint(
                self.out / BEST, config.backbone, model.backbone, class_names=names, config=about
            )
        tensors = {f"head.{name}": value for name, value in model.head.state_dict().items()}
        for name, parameter in model.named_parameters():
            momentum = self.optimizer.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        facts = {"epochs": [dataclasses.asdict(record) for record in self.records]}
        save_checkpoint(
            self.out / LAST,
            config.backbone,
            model.backbone,
            class_names=names,
            config=about,
            training=TrainingState(facts, tensors),
        )
        write_log(self.out / LOG_NAME, self.records, about, self.ranks)

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


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """First setting in which two trainings differ, in words; '' if there is none."""
    for name in sorted(there.keys() | here.keys()):
        if there.get(name) != here.get(name):
            return f"{name} {there.get(name)} there, {here.get(name)} here"
    return ""


def _cuda_devices(ranks: Ranks) -> list[str]:
    return [ranks.device] if ranks.device.startswith("cuda") else []
