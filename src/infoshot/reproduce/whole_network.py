"""Cells over {phi, W}: every task fine-tunes the network on its own images."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from infoshot.backbones.checkpoints import Checkpoint
from infoshot.benchmark import Protocol
from infoshot.benchmark.convergence import Curve
from infoshot.data import ImageSplit, TaskSpec
from infoshot.data.decoded import stored_crops
from infoshot.data.image_tasks import image_tasks
from infoshot.environment import environment
from infoshot.features.extract import Extraction, provenance
from infoshot.finetune import FineTuning, fine_tune
from infoshot.metrics import accuracy, mean_interval
from infoshot.reproduce.experiments import WHOLE_NETWORK, Cell
from infoshot.solvers.objective import conditional_entropy, marginal_entropy
from infoshot.types import ResultRow


@dataclass(frozen=True)
class Network:
    """A network with the images of a split, on which tasks fine-tune it."""

    dataset: str
    split: ImageSplit
    checkpoint: Checkpoint
    how: Extraction

    def key(self, cell: Cell, protocol: Protocol) -> str:
        """Digest of all that the numbers of a cell depend on."""
        parts = [
            self.about,
            dataclasses.asdict(_setting(cell)),
            [protocol.spec.n_way, protocol.spec.n_shot, protocol.spec.n_query, protocol.spec.seed],
            protocol.n_tasks,
            protocol.device.split(":")[0],
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

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
        backbone = self.checkpoint.backbone.to(protocol.device)
        crops, setting, scores = self.crops, _setting(cell), []
        start = time.perf_counter()
        for task, labels in image_tasks(crops, self.split, protocol.spec, range(protocol.n_tasks)):
            probabilities = fine_tune(backbone, task, setting, amp=on_gpu)
            scores.append(accuracy(probabilities.unsqueeze(0), labels.unsqueeze(0)))
            on_progress(1)
        seconds = time.perf_counter() - start
        accuracies = torch.cat(scores)
        mean, half_width = mean_interval(accuracies)
        spec = protocol.spec
        row = ResultRow(
            method=f"{cell.run} over the whole network",
            ways=spec.n_way,
            shots=spec.n_shot,
            queries=spec.n_query,
            tasks=protocol.n_tasks,
            seed=spec.seed,
            regime=str(spec.regime),
            mean=100 * mean,
            ci95=100 * half_width,
            seconds=seconds,
            per_task_ms=1000 * seconds / protocol.n_tasks,
            device=protocol.device,
            dtype="bfloat16" if on_gpu else "float32",
            features=f"{self.about['backbone']} on images",
            features_digest=self.about["weights_sha256"],
            settings=dataclasses.asdict(setting),
            environment=environment(protocol.device),
            assumes=cell.assumes,
        )
        return row, accuracies

    def curve(self, n_tasks: int, device: str) -> Curve:
        """Accuracy and mutual information while tasks fine-tune the network, one after another."""
        backbone = self.checkpoint.backbone.to(device)
        seconds, scores, information = [], [], []
        tasks = image_tasks(self.crops, self.split, TaskSpec(), range(n_tasks))
        for number, (task, labels) in enumerate(tasks):
            watch = _Watch(labels.to(device).unsqueeze(0), device)
            fine_tune(backbone, task, FineTuning(), amp=device.startswith("cuda"), on_step=watch)
            if number or n_tasks == 1:  # the first one warms up
                seconds.append(torch.tensor(watch.seconds))
                scores.append(torch.cat(watch.accuracy))
                information.append(torch.cat(watch.information))
        return Curve(
            f"tim-gd {{{WHOLE_NETWORK}}}",
            torch.stack(seconds).mean(0),
            torch.stack(scores),
            torch.stack(information),
        )


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
