"""Cells over {phi, W}: each task fine-tunes the network on its own images.

What such a cell depends on is in the provenance of the features of the images, see
:func:`network_identity`. A report therefore finds stored results without the network and the
images.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from infoshot.backbones import Encoder
from infoshot.benchmark import Protocol
from infoshot.benchmark.convergence import Curve
from infoshot.core.errors import DataError
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features import write_features
from infoshot.features.base_classes import (
    BaseImages,
    add_base_statistics,
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
from infoshot.reproduction.adaptation import Adaptation, FineTuner
from infoshot.reproduction.ent_min import BaseLogits, EntMin
from infoshot.reproduction.finetune import FineTuning
from infoshot.reproduction.paper import SHIFT, SHIFTED, WHOLE_NETWORK, Cell
from infoshot.reproduction.score_parts import Scores, score_in_parts
from infoshot.solvers.objective import conditional_entropy, marginal_entropy
from infoshot.tasks import TaskSpec
from infoshot.tasks.image_tasks import image_tasks

NO_BASE_MEAN = "no_base_mean"  # provenance of features: the reason why they have no base mean
_DEFAULT_DATASET = "mini-imagenet"
_STORED_AT_ONCE = 100  # tasks that an interrupted cell may have to compute again


def network_identity(provenance: Mapping[str, str]) -> tuple[str, ...]:
    """Return the weights, the images and their size, from the provenance of features.

    Empty if the provenance does not record them. The version and the way of decoding are left out:
    older files have them in other words.
    """
    if not {"weights_sha256", "split_sha256", "transform"} <= provenance.keys():
        return ()
    sizes = provenance["transform"].split(", ")[:2]
    return provenance["weights_sha256"], provenance["split_sha256"], *sizes


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

    def made(self, features: FeatureTable) -> bool:
        """Return whether features are those of this network and these images.

        Features that do not record where they come from may be.
        """
        return network_identity(features.provenance) in ((), network_identity(self.about))

    def can_run(self, setting: Adaptation) -> bool:
        """Return whether the network has what a method starts from.

        Entropy minimisation starts from the logits of a linear base classifier.
        """
        return "bias" in (self.checkpoint.classifier or ()) or not isinstance(setting, EntMin)

    def extract(self, folder: Path, progress: Progress = SILENT) -> Path:
        """Extract features and the base mean into a folder, from its cache where possible.

        The name of the feature file has the data set and the digest of the weights in it, so that
        features of another network are never overwritten.
        """
        path = folder / f"features-{self.dataset}-{self.checkpoint.digest[:8]}.safetensors"
        cache = FeatureCache(folder / "cache", encoder_provenance(self.checkpoint, self.how))

        def extract(dataset: str, split: ImageSplit) -> FeatureTable:
            return extract_split(
                dataset, split, self.checkpoint, self.how, cache=cache, progress=progress
            )

        table = extract(self.dataset, self.split)
        if self.base is not None:
            table = add_base_statistics(table, extract(*self.base))
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
        self,
        cell: Cell,
        protocol: Protocol,
        *,
        earlier: Scores | None = None,
        progress: Progress = SILENT,
    ) -> Iterator[Scores]:
        """Fine-tune the network on every task, in bfloat16 on a GPU.

        Parameters
        ----------
        earlier
            Result of the first tasks. They are not computed again, unless another kind of device
            computed them.

        Returns
        -------
        The result of all tasks so far, after every hundred tasks and at the end.
        """
        crops, setting = self.crops.to(protocol.device), fine_tuning(cell)
        fine_tuner = self._fine_tuner(setting, protocol.device)

        def score(some: range) -> Tensor:
            found = []
            for task, labels in image_tasks(crops, self.split, protocol.spec, some):
                probabilities = fine_tuner(task)
                found.append(accuracy(probabilities.unsqueeze(0), labels.unsqueeze(0)))
                progress.advance()
            return torch.cat(found)

        parts = score_in_parts(
            score, protocol, at_once=_STORED_AT_ONCE, earlier=earlier, progress=progress
        )
        for so_far, scores, seconds in parts:
            yield self._row(cell, setting, so_far, scores, seconds), scores

    def _row(
        self,
        cell: Cell,
        setting: Adaptation,
        protocol: Protocol,
        accuracies: Tensor,
        seconds: float,
    ) -> ResultRow:
        mean, half_width = mean_interval(accuracies.double())
        return ResultRow(
            method=f"{cell.run.name} over the whole network",
            assumes=cell.assumes,
            mean=100 * mean,
            ci95=100 * half_width,
            **protocol.describe(seconds),
            dtype="bfloat16" if protocol.device.startswith("cuda") else "float32",
            features=f"{self.about['backbone']} on images",
            features_digest=self.about["weights_sha256"],
            settings=dataclasses.asdict(setting),
        )

    def seconds_per_task(self, setting: Adaptation, n_tasks: int, device: str) -> list[float]:
        """Time single 5-way 5-shot tasks after a warm-up task; decoding does not count."""
        fine_tuner, seconds, crops = self._fine_tuner(setting, device), [], self.crops.to(device)
        for task, _ in image_tasks(crops, self.split, TaskSpec(n_shot=5), range(n_tasks + 1)):
            start = time.perf_counter()
            fine_tuner(task)
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    def curve(self, n_tasks: int, device: str) -> Curve:
        """Record accuracy and mutual information while tasks fine-tune the network in turn.

        Predictions are recorded in evaluation mode, as the authors do. One warm-up task runs before
        the ``n_tasks``.
        """
        fine_tuner = self._fine_tuner(FineTuning(), device)
        seconds, scores, information = [], [], []
        tasks = image_tasks(self.crops.to(device), self.split, TaskSpec(), range(n_tasks + 1))
        for number, (task, labels) in enumerate(tasks):
            recorder = _Recorder(labels.to(device).unsqueeze(0), device)
            fine_tuner(task, on_step=recorder)
            if number:
                seconds.append(torch.tensor(recorder.seconds))
                scores.append(torch.cat(recorder.accuracy))
                information.append(torch.cat(recorder.information))
        return Curve(
            f"tim-gd {{{WHOLE_NETWORK}}}",
            device,
            torch.stack(scores),
            torch.stack(information),
            seconds_alone=torch.stack(seconds).mean(0),
        )

    def _fine_tuner(self, setting: Adaptation, device: str) -> FineTuner:
        backbone = self.checkpoint.backbone.to(device)
        if isinstance(setting, EntMin):
            assert self.checkpoint.classifier is not None
            backbone = BaseLogits(backbone, self.checkpoint.classifier)
        return FineTuner(backbone, setting, amp=device.startswith("cuda"))


def open_network(
    encoder: Encoder,
    root: Path,
    *,
    dataset: str = "",
    base_root: Path | None = None,
    base_dataset: str | None = None,
    device: str = "cpu",
) -> Network:
    """Open the test images of a data set for a network, and the images of its base classes.

    Parameters
    ----------
    encoder
        The network.
    root, dataset
        The images; without a name, those of the data set that the network was trained on. The name
        ``mini-to-cub`` also tells what the network was trained on.
    base_root
        The images of the base classes, if they are not under ``root``.
    base_dataset
        The data set that the network was trained on; ``None``: what the checkpoint records.
    """
    how = Extraction(device=device)
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

    def __call__(self, predict: Callable[[], Tensor]) -> None:
        """Record one step."""
        if self._device.startswith("cuda"):
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds.append(now - self._start - self._own_seconds)
        log_p = predict()
        self.accuracy.append(accuracy(log_p, self._labels).cpu())
        self.information.append((marginal_entropy(log_p) - conditional_entropy(log_p)).cpu())
        self._own_seconds += time.perf_counter() - now


def fine_tuning(cell: Cell) -> Adaptation:
    """Return the settings of a cell over the whole network."""
    return EntMin() if cell.run.name == "ent-min" else FineTuning(**cell.settings)
