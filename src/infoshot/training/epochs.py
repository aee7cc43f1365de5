"""The training loop: epochs of gradient descent that resume after an interruption.

It is the same for base training and episodic training; a ``TrainingProblem`` says what is learnt.
"""

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.backbones.checkpoint_description import CONFIG_NAME
from infoshot.core.atomic import make_folder, sole_writer
from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.core.rng import random_bits
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.training.config_file import write_config
from infoshot.training.curve import CURVE_NAME, plot_curve
from infoshot.training.events import EVENTS_NAME, EventLog
from infoshot.training.optimizers import load_optimizer, optimizer_tensors, set_learning_rate
from infoshot.training.problem import StepLoss, TrainingProblem
from infoshot.training.records import EpochRecord
from infoshot.training.run_config import RunConfig
from infoshot.training.snapshot import Snapshot, read_snapshot

_DROPOUT = 4  # stream of random numbers


def run_training(
    make_problem: Callable[[], TrainingProblem[Any]],
    config: RunConfig,
    out: Path,
    *,
    ranks: Ranks = SINGLE_PROCESS,
    compile: bool = False,
    tensorboard: bool = False,
    progress: Progress = SILENT,
) -> list[EpochRecord]:
    """Train, or resume an interrupted run.

    Parameters
    ----------
    make_problem
        Returns what is trained; it may seed PyTorch's random numbers, which are restored.
    config
        The settings of the problem.
    out
        Folder of the run; ``best`` and ``last`` in it are checkpoints.
    ranks
        The processes. All of them must see ``out``; the main one writes.
    compile
        Whether to compile the network: a slower first epoch, faster ones after it.
    tensorboard
        Whether to write TensorBoard event files.
    progress
        Counts images or episodes, and shows a line per epoch.

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
    # Neither depend on the caller's random numbers nor change them.
    forked = torch.random.fork_rng(_cuda_devices(ranks))
    fast = torch.backends.cudnn.flags(enabled=True, benchmark=True)
    with forked, fast:
        run = _Run(make_problem(), out)  # before the lock: what is refused leaves no file
        make_folder(out)
        with sole_writer(out) if ranks.is_main else nullcontext():
            run.resume()
            run.connect(compile)
            n_done, n_units = len(run.records), run.problem.units_per_epoch
            progress.start("training", config.epochs * n_units, run.problem.unit)
            if n_done == config.epochs:
                progress.say(f"All {n_done} epochs in {out} are already done.")
            elif n_done:
                progress.say(f"Resuming after epoch {n_done} of {config.epochs} in {out}.")
            progress.advance(n_done * n_units)
            with _open_writer(run, tensorboard) as write:
                while len(run.records) < config.epochs:
                    run.epoch(progress)
                    write()
                    progress.say(run.records[-1].summary(config.epochs))
    if ranks.is_main:
        plot_curve(run.records, out / CURVE_NAME, run.problem.labels)
    return run.records


class _Run:
    """A training run in progress."""

    def __init__(self, problem: TrainingProblem[Any], out: Path) -> None:
        self.problem, self.out = problem, out
        self.config, self.ranks = problem.config, problem.ranks
        self.optimizer = problem.make_optimizer()
        self.records: list[EpochRecord] = []

    def connect(self, compile: bool) -> None:
        """Prepare the batches and the network, together with the other processes."""
        about = {**self.problem.about, "epochs done": len(self.records)}
        self.ranks.check_same("images, settings or epochs", json.dumps(about, sort_keys=True))
        if compile:
            _import_compiler()
        self.problem.connect(compile=compile)

    def resume(self) -> None:
        """Load the state of an interrupted run from the folder, if there is one."""
        problem = self.problem
        snapshot = read_snapshot(self.out, problem.about, self.config.defaults().to_json())
        if snapshot is None:
            return
        problem.load_weights(snapshot.weights, snapshot.tensors)
        load_optimizer(self.optimizer, problem.network, snapshot.tensors)
        self.records = list(snapshot.records)

    def snapshot(self) -> Snapshot:
        """Copy all that the next epoch needs, so that training can continue meanwhile."""
        problem = self.problem
        state = optimizer_tensors(self.optimizer, problem.network)
        return Snapshot(
            self.config.backbone,
            problem.about,
            problem.class_names,
            _copy(problem.backbone_weights()),
            _copy({**problem.other_weights(), **state}),
            tuple(self.records),
            problem.system(),
        )

    def epoch(self, progress: Progress) -> None:
        """Train on the batches of an epoch, then validate."""
        number, problem = len(self.records), self.problem
        # Dropout: random numbers of each epoch and process, the same after a restart.
        place = torch.tensor([number])
        bits = random_bits(self.config.seed, _DROPOUT, place, (self.ranks.rank + 1,))
        torch.manual_seed(int(bits[0, -1]))
        rate = self.config.learning_rate_at(number)
        set_learning_rate(self.optimizer, rate)
        problem.train_mode()
        totals = torch.zeros(2, dtype=torch.float64, device=self.ranks.device)
        n_samples, start = 0, time.perf_counter()
        for batch in problem.batches(number):
            step = problem.loss(batch)
            totals += self._descend(step)
            n_samples += step.n_samples * self.ranks.size
            progress.advance(step.n_units * self.ranks.size)
        loss, accuracy = (self.ranks.sum(totals) / n_samples).tolist()
        train_seconds = time.perf_counter() - start
        val = problem.validate()
        # The loss is from before the last step, so check the weights as well.
        state = problem.network.state_dict()
        weights = (value for value in state.values() if value.is_floating_point())
        if not math.isfinite(loss + (val[0] or 0)) or not all(w.isfinite().all() for w in weights):
            raise DataError(
                f"the training diverged in epoch {number + 1} (loss {loss:g}); a lower "
                f"learning rate than {self.config.learning_rate:g} may help."
            )
        speed, seconds = problem.images_per_epoch / train_seconds, time.perf_counter() - start
        self.records.append(
            EpochRecord(number + 1, rate, loss, 100 * accuracy, *val, speed, seconds)
        )

    def _descend(self, step: StepLoss) -> Tensor:
        """Take an optimisation step; return the sums of the loss and of the correct answers."""
        self.optimizer.zero_grad(set_to_none=True)
        step.loss.backward()
        self.optimizer.step()
        return torch.stack((step.loss.detach().double() * step.n_samples, step.n_correct.double()))


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
