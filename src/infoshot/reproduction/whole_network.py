"""Cells over {phi, W}: every task fine-tunes the network on its own images."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from infoshot.backbones.checkpoints import Checkpoint
from infoshot.benchmark import Protocol
from infoshot.benchmark.convergence import Curve
from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features.extract import Extraction, provenance
from infoshot.images import ImageSplit
from infoshot.images.in_memory import stored_crops
from infoshot.metrics import accuracy, mean_interval
from infoshot.reproduction.experiments import WHOLE_NETWORK, Cell
from infoshot.reproduction.finetune import FineTuner, FineTuning
from infoshot.reproduction.report_store import cell_key
from infoshot.solvers.objective import conditional_entropy, marginal_entropy
from infoshot.tasks import TaskSampler, TaskSpec
from infoshot.tasks.image_tasks import image_tasks


@dataclass(frozen=True)
class Network:
    """A network with the images of a split, on which tasks fine-tune it."""

    dataset: str
    split: ImageSplit
    checkpoint: Checkpoint
    how: Extraction

    def key(self, cell: Cell, protocol: Protocol) -> str:
        """Digest of all that the numbers of a cell depend on."""
        return cell_key(protocol, self.about, dataclasses.asdict(_setting(cell)))

    def check_features(self, features: FeatureTable) -> None:
        """Raise if the features it is compared with say that they are of another network."""
        weights = self.checkpoint.digest
        if features.provenance.get("weights_sha256", weights) != weights:
            raise DataError(
                "the features are of another network than --checkpoint; leave --features out to "
                "compare with features of its own."
            )

    def validate(self, protocol: Protocol) -> None:
        """Raise, before any work, if the tasks cannot be drawn from the images."""
        labels = torch.tensor(self.split.labels)
        nothing = torch.empty(len(labels), 0)
        names = tuple(self.split.class_names)
        TaskSampler(FeatureTable(nothing, labels, class_names=names), protocol.spec)

    @cached_property
    def about(self) -> dict[str, str]:
        """Everything the features of these images depend on."""
        return provenance(self.dataset, self.split, self.checkpoint, self.how)

    @cached_property
    def crops(self) -> Tensor:
        """All images of the split, decoded once."""
        resize, crop = self.how.sizes(self.checkpoint)
        return stored_crops(self.split.records, resize, crop, n_workers=self.how.n_workers)

    def score(
        self, cell: Cell, protocol: Protocol, on_progress: Callable[[int], None]
    ) -> tuple[ResultRow, Tensor]:
        """Fine-tune the network on every task; bfloat16 on a GPU."""
        on_gpu = protocol.device.startswith("cuda")
        crops, setting, scores = self.crops, _setting(cell), []
        fine_tuner = self._fine_tuner(setting, protocol.device)
        start = time.perf_counter()
        for task, labels in image_tasks(crops, self.split, protocol.spec, range(protocol.n_tasks)):
            probabilities = fine_tuner(task)
            scores.append(accuracy(probabilities.unsqueeze(0), labels.unsqueeze(0)))
            on_progress(1)
        seconds = time.perf_counter() - start
        accuracies = torch.cat(scores)
        mean, half_width = mean_interval(accuracies)
        row = ResultRow(
            method=f"{cell.run} over the whole network",
            assumes=cell.assumes,
            mean=100 * mean,
            ci95=100 * half_width,
            **protocol.describe(seconds),
            dtype="bfloat16" if on_gpu else "float32",
            features=f"{self.about['backbone']} on images",
            features_digest=self.about["weights_sha256"],
            settings=dataclasses.asdict(setting),
        )
        return row, accuracies

    def seconds_alone(self, setting: FineTuning, n_tasks: int, device: str) -> list[float]:
        """Seconds of single 5-way 5-shot tasks, after one that warms up; images are decoded."""
        fine_tuner, seconds = self._fine_tuner(setting, device), []
        for task, _ in image_tasks(self.crops, self.split, TaskSpec(n_shot=5), range(n_tasks + 1)):
            start = time.perf_counter()
            fine_tuner(task)
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    def curve(self, n_tasks: int, device: str) -> Curve:
        """Accuracy and mutual information while tasks fine-tune the network, one after another.

        One more task than ``n_tasks`` runs before them to warm up.
        """
        fine_tuner = self._fine_tuner(FineTuning(), device)
        seconds, scores, information = [], [], []
        tasks = image_tasks(self.crops, self.split, TaskSpec(), range(n_tasks + 1))
        for number, (task, labels) in enumerate(tasks):
            watch = _Watch(labels.to(device).unsqueeze(0), device)
            fine_tuner(task, on_step=watch)
            if number:
                seconds.append(torch.tensor(watch.seconds))
                scores.append(torch.cat(watch.accuracy))
                information.append(torch.cat(watch.information))
        return Curve(
            f"tim-gd {{{WHOLE_NETWORK}}}",
            torch.stack(seconds).mean(0),
            torch.stack(scores),
            torch.stack(information),
        )

    def _fine_tuner(self, setting: FineTuning, device: str) -> FineTuner:
        backbone = self.checkpoint.backbone.to(device)
        return FineTuner(backbone, setting, amp=device.startswith("cuda"))


class _Watch:
    """Takes down what queries look like at every step; its own time does not count."""

    def __init__(self, labels: Tensor, device: str) -> None:
        self.seconds: list[float] = []
        self.accuracy: list[Tensor] = []
        self.information: list[Tensor] = []
        self._labels, self._device, self._aside = labels, device, 0.0
        self._start = time.perf_counter()

    def __call__(self, log_p: Tensor) -> None:
        """Take down one step."""
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds.append(now - self._start - self._aside)
        self.accuracy.append(accuracy(log_p, self._labels).cpu())
        self.information.append((marginal_entropy(log_p) - conditional_entropy(log_p)).cpu())
        self._aside += time.perf_counter() - now


def _setting(cell: Cell) -> FineTuning:
    return FineTuning(**cell.settings)
