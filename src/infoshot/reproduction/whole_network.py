"""Cells over {phi, W}: each task fine-tunes the network on its own images."""

import dataclasses
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from infoshot.backbones import Encoder, open_checkpoint
from infoshot.benchmark import Protocol
from infoshot.benchmark.convergence import Curve
from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features import write_features
from infoshot.features.base_classes import (
    BaseImages,
    add_base_mean,
    find_base_images,
    record_training_set,
)
from infoshot.features.cache import FeatureCache
from infoshot.features.extract import (
    Extraction,
    encoder_provenance,
    extract_split,
    split_provenance,
)
from infoshot.images import ImageDataset, ImageSplit, open_dataset
from infoshot.images.in_memory import load_crops
from infoshot.metrics import accuracy, mean_interval
from infoshot.reproduction.finetune import FineTuner, FineTuning
from infoshot.reproduction.paper import SHIFT, SHIFTED, WHOLE_NETWORK, Cell
from infoshot.solvers.objective import conditional_entropy, marginal_entropy
from infoshot.tasks import TaskSampler, TaskSpec
from infoshot.tasks.image_tasks import image_tasks

NO_BASE_MEAN = "no_base_mean"  # provenance of features: the reason why they have no base mean
_DEFAULT_DATASET = "mini-imagenet"


@dataclass(frozen=True)
class Network:
    """A network and the images of a split; tasks of these images fine-tune the network.

    ``base`` are the images of the classes that it was trained on, if they are at hand.
    """

    dataset: str
    split: ImageSplit
    checkpoint: Encoder
    how: Extraction
    base: BaseImages | None = None

    def check_features(self, features: FeatureTable) -> None:
        """Raise if features that it is compared with record the weights of another network."""
        weights = self.checkpoint.digest
        if features.provenance.get("weights_sha256", weights) != weights:
            raise DataError(
                "features must be those of the network in checkpoint; got features of other "
                "weights. Without features, they are extracted from the images."
            )

    def validate(self, protocol: Protocol) -> None:
        """Raise, before any work, if the tasks cannot be drawn from the images."""
        labels = torch.tensor(self.split.labels)
        nothing = torch.empty(len(labels), 0)
        names = tuple(self.split.class_names)
        TaskSampler(FeatureTable(nothing, labels, class_names=names), protocol.spec)

    def extract(self, folder: Path, progress: Progress = SILENT) -> Path:
        """Extract features and the base mean into a folder, from its cache where possible.

        The name of the feature file has the digest of the weights in it, so that features of
        another network are never overwritten.
        """
        path = folder / f"features-{self.checkpoint.digest[:8]}.safetensors"
        cache = FeatureCache(folder / "cache", encoder_provenance(self.checkpoint, self.how))

        def extract(dataset: str, split: ImageSplit) -> FeatureTable:
            return extract_split(
                dataset, split, self.checkpoint, self.how, cache=cache, progress=progress
            )

        table = extract(self.dataset, self.split)
        if self.base is not None:
            table = add_base_mean(table, extract(*self.base))
        else:
            classes = f"train classes of {self.checkpoint.trained_on or self.dataset}"
            reason = f"no images of the base classes ({classes}) under root; needs base_root"
            table = dataclasses.replace(
                table, provenance={**table.provenance, NO_BASE_MEAN: reason}
            )
        write_features(path, table)
        return path

    @cached_property
    def about(self) -> dict[str, str]:
        """The provenance of features of these images."""
        return split_provenance(self.dataset, self.split, self.checkpoint, self.how)

    @cached_property
    def crops(self) -> Tensor:
        """All images of the split, decoded at first use."""
        resize, crop = self.how.sizes(self.checkpoint)
        return load_crops(self.split.records, resize, crop, n_workers=self.how.n_workers)

    def score(
        self, cell: Cell, protocol: Protocol, progress: Progress = SILENT
    ) -> tuple[ResultRow, Tensor]:
        """Fine-tune the network on every task, in bfloat16 on a GPU.

        Returns
        -------
        The row, and the accuracies of the tasks between 0 and 1, shape ``(task,)``.
        """
        on_gpu = protocol.device.startswith("cuda")
        crops, setting, scores = self.crops, fine_tuning(cell), []
        fine_tuner = self._fine_tuner(setting, protocol.device)
        start = time.perf_counter()
        for task, labels in image_tasks(crops, self.split, protocol.spec, range(protocol.n_tasks)):
            probabilities = fine_tuner(task)
            scores.append(accuracy(probabilities.unsqueeze(0), labels.unsqueeze(0)))
            progress.advance()
        seconds = time.perf_counter() - start
        accuracies = torch.cat(scores)
        mean, half_width = mean_interval(accuracies)
        row = ResultRow(
            method=f"{cell.run.name} over the whole network",
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

    def seconds_per_task(self, setting: FineTuning, n_tasks: int, device: str) -> list[float]:
        """Time single 5-way 5-shot tasks after a warm-up task; decoding does not count."""
        fine_tuner, seconds = self._fine_tuner(setting, device), []
        for task, _ in image_tasks(self.crops, self.split, TaskSpec(n_shot=5), range(n_tasks + 1)):
            start = time.perf_counter()
            fine_tuner(task)
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    def curve(self, n_tasks: int, device: str) -> Curve:
        """Record accuracy and mutual information while tasks fine-tune the network in turn.

        One warm-up task runs before the ``n_tasks``.
        """
        fine_tuner = self._fine_tuner(FineTuning(), device)
        seconds, scores, information = [], [], []
        tasks = image_tasks(self.crops, self.split, TaskSpec(), range(n_tasks + 1))
        for number, (task, labels) in enumerate(tasks):
            recorder = _Recorder(labels.to(device).unsqueeze(0), device)
            fine_tuner(task, on_step=recorder)
            if number:
                seconds.append(torch.tensor(recorder.seconds))
                scores.append(torch.cat(recorder.accuracy))
                information.append(torch.cat(recorder.information))
        return Curve(
            f"tim-gd {{{WHOLE_NETWORK}}}",
            torch.stack(seconds).mean(0),
            torch.stack(scores),
            torch.stack(information),
        )

    def _fine_tuner(self, setting: FineTuning, device: str) -> FineTuner:
        backbone = self.checkpoint.backbone.to(device)
        return FineTuner(backbone, setting, amp=device.startswith("cuda"))


def open_network(
    checkpoint: Path,
    root: Path,
    *,
    dataset: str = "",
    backbone: str | None = None,
    base_root: Path | None = None,
    base_dataset: str | None = None,
    device: str = "cpu",
) -> Network:
    """Open a network, the test images of a data set, and the images of the base classes.

    Parameters
    ----------
    checkpoint, backbone
        As in :func:`infoshot.backbones.open_checkpoint`.
    root, dataset
        The images; without a name, those of the data set that the network was trained on. The name
        ``mini-to-cub`` also tells what the network was trained on.
    base_root
        The images of the base classes, if they are not under ``root``.
    base_dataset
        The data set that the network was trained on; ``None``: what the checkpoint records.
    """
    how = Extraction(device=device)
    encoder = open_checkpoint(checkpoint, backbone)
    how.sizes(encoder)
    if dataset == SHIFTED:
        base_dataset, dataset = SHIFT
    if base_dataset is not None:
        encoder = record_training_set(encoder, base_dataset)
    name = dataset or encoder.trained_on or _DEFAULT_DATASET
    images = open_dataset(name, root)
    split = _test_images(images, hint="" if dataset else "; pass dataset=NAME of these images")
    try:
        base = find_base_images(encoder, images, base_root)
    except DataError:
        if base_root is not None:
            raise
        base = None
    return Network(name, split, encoder, how, base)


def _test_images(images: ImageDataset, hint: str) -> ImageSplit:
    try:
        return images.split("test")
    except DataError as error:
        raise DataError(
            f"{images.root}: there are no images of the test classes of {images.spec.name}{hint}."
        ) from error


class _Recorder:
    """Records time, accuracy and mutual information at every step, without its own time."""

    def __init__(self, labels: Tensor, device: str) -> None:
        self.seconds: list[float] = []
        self.accuracy: list[Tensor] = []
        self.information: list[Tensor] = []
        self._labels, self._device, self._own_seconds = labels, device, 0.0
        self._start = time.perf_counter()

    def __call__(self, log_p: Tensor) -> None:
        """Record one step."""
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds.append(now - self._start - self._own_seconds)
        self.accuracy.append(accuracy(log_p, self._labels).cpu())
        self.information.append((marginal_entropy(log_p) - conditional_entropy(log_p)).cpu())
        self._own_seconds += time.perf_counter() - now


def fine_tuning(cell: Cell) -> FineTuning:
    """Return the settings of a cell over the whole network."""
    return FineTuning(**cell.settings)
