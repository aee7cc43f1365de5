"""The training loop: epochs of gradient descent that resume after an interruption."""

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from infoshot.backbones import make_backbone
from infoshot.core.atomic import make_folder, sole_writer
from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.core.rng import random_bits
from infoshot.distributed import SINGLE_PROCESS, Ranks, synchronise_batch_norm
from infoshot.training.base_classifier import BaseClassifier, Teacher, make_head
from infoshot.training.batches import Batches, move_if_it_fits
from infoshot.training.config import TrainConfig
from infoshot.training.config_file import write_config
from infoshot.training.curve import CURVE_NAME, plot_curve
from infoshot.training.events import EVENTS_NAME, EventLog
from infoshot.training.losses import Network, TrainingLoss
from infoshot.training.manifold_mixup import ManifoldMixup
from infoshot.training.records import EpochRecord
from infoshot.training.snapshot import Snapshot, read_snapshot
from infoshot.training.training_images import TrainingImages
from infoshot.training.validation import make_validation

CONFIG_NAME = "config.toml"
_DROPOUT = 4  # stream of random numbers


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
    ranks
        The processes. All of them must see ``out``; the main one writes.
    compile
        Whether to compile the network: a slower first epoch, faster ones after it.
    tensorboard
        Whether to write TensorBoard event files.
    progress
        Counts the images, and shows a line per epoch.

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
    """
    config.validate()
    config.check_processes(ranks.size)
    make_folder(out)
    # Neither depend on the caller's random numbers nor change them.
    forked = torch.random.fork_rng(_cuda_devices(ranks))
    fast = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    with forked, fast, sole_writer(out) if ranks.is_main else nullcontext():
        run = _Run(images, config, out, ranks, teacher)
        run.resume()
        run.connect(compile)
        n_done, n_images = len(run.records), run.batches.n_images
        progress.start("training", config.epochs * n_images, "images")
        if n_done == config.epochs:
            progress.say(f"All {n_done} epochs in {out} are already done.")
        elif n_done:
            progress.say(f"Resuming after epoch {n_done} of {config.epochs} in {out}.")
        progress.advance(n_done * n_images)
        with _open_writer(run, tensorboard) as write:
            while len(run.records) < config.epochs:
                run.epoch(progress)
                write()
                progress.say(run.records[-1].summary(config.epochs))
    if ranks.is_main:
        plot_curve(run.records, out / CURVE_NAME, f"{config.backbone}, {images.about['dataset']}")
    return run.records


class _Run:
    """A training run in progress."""

    def __init__(
        self,
        images: TrainingImages,
        config: TrainConfig,
        out: Path,
        ranks: Ranks,
        teacher: Teacher | None,
    ) -> None:
        self.images, self.config, self.out, self.ranks = images, config, out, ranks
        self.records: list[EpochRecord] = []
        n_classes = len(images.class_names)
        self._smoothing = config.smoothing_over_all(n_classes)
        torch.manual_seed(config.seed)
        backbone = make_backbone(config.backbone)
        head = make_head(config, backbone.feature_dim, n_classes)
        predicts_angle = config.rotation_weight > 0
        self.model = BaseClassifier(backbone, n_classes, predicts_angle=predicts_angle, head=head)
        self._about = {**config.to_json(), **images.about}
        self.teacher: BaseClassifier | None = None
        if teacher is not None:
            teacher.check_classes(images.class_names)
            self.teacher = teacher.network
            self.teacher.to(device=torch.device(ranks.device), memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._about["teacher_sha256"] = teacher.digest
        if ranks.size > 1:
            synchronise_batch_norm(self.model, ranks.device)
        self.model.to(device=torch.device(ranks.device), memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=config.learning_rate,
            momentum=config.momentum,
            nesterov=config.nesterov,
            weight_decay=config.weight_decay,
            fused=ranks.device.startswith("cuda") or None,
        )
        crops = images.val_crops
        if crops is not None:
            crops = move_if_it_fits(crops, ranks.device)
        self.validation = make_validation(crops, images.val_labels, config.val_tasks, config.seed)

    def connect(self, compile: bool) -> None:
        """Prepare the batches and the network, together with the other processes."""
        about = {**self._about, "epochs done": len(self.records)}
        self.ranks.check_same("images, settings or epochs", json.dumps(about, sort_keys=True))
        if compile:
            _import_compiler()
        self.batches = Batches(
            self.images,
            self.model.backbone.input_spec,
            self.config,
            ranks=self.ranks,
            compile=compile,
        )
        self.network: Network = self.model
        teacher: Network | None = self.teacher
        mixup = self._mixup()
        if self.ranks.size > 1:
            self.network = DistributedDataParallel(self.model)
        if compile:
            self.network = torch.compile(self.network)
            teacher = None if teacher is None else torch.compile(teacher)
        self._loss = TrainingLoss(self.config, self._smoothing, mixup, teacher)

    def resume(self) -> None:
        """Load the state of an interrupted run from the folder, if there is one."""
        snapshot = read_snapshot(self.out, self._about)
        if snapshot is None:
            return
        model, tensors = self.model, snapshot.tensors
        model.backbone.load_state_dict(snapshot.weights)
        heads = {name: tensors[name] for name in model.state_dict() if name in tensors}
        model.load_state_dict(heads, strict=False)
        for name, parameter in model.named_parameters():
            if f"momentum.{name}" in tensors:
                momentum = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
                self.optimizer.state[parameter]["momentum_buffer"] = momentum
        self.records = list(snapshot.records)

    def snapshot(self) -> Snapshot:
        """Copy all that the next epoch needs, so that training can continue meanwhile."""
        model = self.model
        state = model.state_dict()
        tensors = {name: value for name, value in state.items() if not name.startswith("backbone.")}
        for name, parameter in model.named_parameters():
            momentum = self.optimizer.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        return Snapshot(
            self.config.backbone,
            self._about,
            self.images.class_names,
            _copy(model.backbone.state_dict()),
            _copy(tensors),
            tuple(self.records),
        )

    def epoch(self, progress: Progress) -> None:
        """Train on all images once, then validate."""
        number, device = len(self.records), self.ranks.device
        # Dropout: random numbers of each epoch and process, the same after a restart.
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
            progress.advance(len(y) * self.ranks.size)
        n_images = self.batches.n_images
        loss, accuracy = (self.ranks.sum(totals) / n_images).tolist()
        train_seconds = time.perf_counter() - start
        val: tuple[float | None, float | None] = (None, None)
        if self.validation is not None:
            val = self.validation.accuracy(self.model.backbone, self.ranks)
        # The loss is from before the last step, so check the weights as well.
        weights = (value for value in self.model.state_dict().values() if value.is_floating_point())
        if not math.isfinite(loss + (val[0] or 0)) or not all(w.isfinite().all() for w in weights):
            raise DataError(
                f"the training diverged in epoch {number + 1} (loss {loss:g}); a lower "
                f"learning rate than {self.config.learning_rate:g} may help."
            )
        speed, seconds = n_images / train_seconds, time.perf_counter() - start
        self.records.append(
            EpochRecord(number + 1, rate, loss, 100 * accuracy, *val, speed, seconds)
        )

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        """Take one optimisation step; return the sums of the loss and of the correct answers."""
        loss, correct = self._loss(self.network, x, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return torch.stack((loss.detach().double() * len(y), correct.double()))

    def _mixup(self) -> ManifoldMixup | None:
        if not self.config.mixup:
            return None
        return ManifoldMixup(self.model.backbone, self.config.mixup, self.ranks.device)


@contextmanager
def _open_writer(run: _Run, tensorboard: bool) -> Iterator[Callable[[], None]]:
    """Yield a function that writes the files of the latest epoch; only the main process writes.

    Files are written in the background, those of one epoch at a time.
    """
    if not run.ranks.is_main:
        yield lambda: None
        return
    out, ranks = run.out, run.ranks
    write_config(out / CONFIG_NAME, run.config)
    opened = closing(EventLog(out / EVENTS_NAME, run.records)) if tensorboard else nullcontext()
    with opened as events, ThreadPoolExecutor(1) as background:
        pending: Future[None] | None = None
        if run.records:
            pending = background.submit(run.snapshot().complete, out, ranks)

        def write() -> None:
            nonlocal pending
            if pending is not None:
                pending.result()
            pending = background.submit(run.snapshot().write, out, ranks)
            if events is not None:
                events.write(run.records[-1])

        yield write
        if pending is not None:
            pending.result()


def _import_compiler() -> None:
    """Import a module of PyTorch's compiler that uses a deprecated decorator of PyTorch itself.

    ``torch.compile`` imports it. Importing it here keeps the warning, which users
    can do nothing about, out of their logs, and hides no other warning.
    """
    with warnings.catch_warnings():
        message = r"`torch\.jit\.script_method` is deprecated"
        warnings.filterwarnings("ignore", message, DeprecationWarning)
        import torch.utils.mkldnn  # noqa: F401


def _copy(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors on their device, so that writing them does not delay the training."""
    return {name: value.detach().clone() for name, value in tensors.items()}


def _cuda_devices(ranks: Ranks) -> list[str]:
    return [ranks.device] if ranks.device.startswith("cuda") else []
