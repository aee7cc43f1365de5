"""Base training: epochs of gradient descent that continue where they were interrupted."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from infoshot.backbones import Backbone, make_backbone
from infoshot.core.atomic import make_folder, sole_writer
from infoshot.core.errors import DataError
from infoshot.core.rng import random_bits
from infoshot.distributed import SINGLE_PROCESS, Ranks, synchronise_batch_norm
from infoshot.training.batches import Batches, on_device_if_it_fits
from infoshot.training.config import TrainConfig
from infoshot.training.curve import plot_curve
from infoshot.training.losses import smoothed_cross_entropy
from infoshot.training.records import EpochRecord
from infoshot.training.snapshot import Snapshot, read_snapshot
from infoshot.training.training_images import TrainingImages
from infoshot.training.validation import make_validation

CURVE_NAME = "curve.png"
_DROPOUT = 4  # stream of random numbers

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
    ranks: Ranks = SINGLE_PROCESS,
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
        If ``out`` holds another training or is written by another process, or if the training
        diverges.
    """
    config.validate()
    config.check_shared(ranks.size)
    make_folder(out)
    # What happens in here must not depend on, or change, the caller's random numbers.
    forked = torch.random.fork_rng(_cuda_devices(ranks))
    fast = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    with forked, fast, sole_writer(out) if ranks.is_main else nullcontext():
        run = _Run(images, config, out, ranks)
        run.resume()
        run.connect(compiled)
        if ranks.is_main:
            on_epoch(run.records, True)
        with ThreadPoolExecutor(1) as writer:
            writing = None
            if run.resumed and ranks.is_main:
                writing = writer.submit(run.snapshot().write_best, out)
            while len(run.records) < config.epochs:
                run.epoch(on_progress if ranks.is_main else lambda n_images: None)
                if ranks.is_main:
                    # Files are written while the next epoch learns, those of one epoch at a time.
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
        self, images: TrainingImages, config: TrainConfig, out: Path, ranks: Ranks
    ) -> None:
        self.images, self.config, self.out, self.ranks = images, config, out, ranks
        self.records: list[EpochRecord] = []
        self.resumed = False
        torch.manual_seed(config.seed)
        backbone = make_backbone(config.backbone)
        self.model = Classifier(backbone, len(images.class_names))
        if ranks.size > 1:
            synchronise_batch_norm(self.model)
        self.model.to(device=torch.device(ranks.device), memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=ranks.device.startswith("cuda") or None,
        )
        crops = images.val_crops
        if crops is not None:
            crops = on_device_if_it_fits(crops, ranks.device)
        self.validation = make_validation(crops, images.val_labels, config.val_tasks, config.seed)

    def connect(self, compiled: bool) -> None:
        """Get ready to learn, together with the other processes."""
        about = {**self._about(), "epochs done": len(self.records)}
        self.ranks.check_same("the training", json.dumps(about, sort_keys=True))
        self.batches = Batches(
            self.images,
            self.model.backbone.input_spec,
            batch_size=self.config.images_per_step(),
            seed=self.config.seed,
            ranks=self.ranks,
            compiled=compiled,
        )
        self.network: Callable[[Tensor], Tensor] = self.model
        if self.ranks.size > 1:
            self.network = DistributedDataParallel(self.model)
        if compiled:
            self.network = torch.compile(self.network)

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
        self.records, self.resumed = list(snapshot.records), True

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
        place = torch.tensor([number])
        bits = random_bits(self.config.seed, _DROPOUT, place, (self.ranks.rank + 1,))
        torch.manual_seed(int(bits[0, -1]))
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
        val: tuple[float | None, float | None] = (None, None)
        if self.validation is not None:
            val = self.validation.accuracy(self.model.backbone, self.ranks)
        # The loss is from before the last step, so what came of it is looked at as well.
        weights = (value for value in self.model.state_dict().values() if value.is_floating_point())
        if not math.isfinite(loss + (val[0] or 0)) or not all(w.isfinite().all() for w in weights):
            raise DataError(
                f"the training has diverged in epoch {number + 1} (loss {loss:g}); a lower "
                f"learning rate than {self.config.learning_rate:g} may help."
            )
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


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies where the tensors are: whoever writes them waits for them, not the training."""
    return {name: value.detach().clone() for name, value in tensors.items()}


def _cuda_devices(ranks: Ranks) -> list[str]:
    return [ranks.device] if ranks.device.startswith("cuda") else []
