"""Evaluates trained systems on tasks of images, the same tasks as those of every other row.

What a system reads of the images decides how its tasks are made. Vectors are extracted and cached
like all features. Feature maps are computed once for each image and kept in float16 where the
network runs, if they fit there; otherwise they are computed again for every chunk of tasks. Systems
that read images get normalised crops.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from infoshot.benchmark import Protocol
from infoshot.core.errors import DataError
from infoshot.core.memory import total_memory
from infoshot.core.parallel import chunk_ranges
from infoshot.core.progress import SILENT, Progress
from infoshot.core.types import ResultRow
from infoshot.features.cache import FeatureCache
from infoshot.features.encoding import prepare_images
from infoshot.features.extract import encoder_provenance, extract_split
from infoshot.metrics import accuracy, mean_interval
from infoshot.reproduction.paper import Cell
from infoshot.reproduction.paper_systems import SystemForm
from infoshot.reproduction.score_parts import Scores, score_in_parts
from infoshot.reproduction.system_trials import Trial
from infoshot.tasks.image_tasks import image_sampler

Gather = Callable[[Tensor], Tensor]
"""Returns what a system reads of images, given as positions in their split, ``(task, image)``."""
_STORED_AT_ONCE = {"vectors": 2000, "maps": 500, "images": 100}  # tasks
_MOST_AT_ONCE = 128  # tasks of one chunk
_BYTES_AT_ONCE = {"cpu": 2**25, "cuda": 2**29}  # that a chunk of tasks reads


class Trials:
    """Scores the cells of several trials, one after another.

    What a system reads is kept until the next trial.
    """

    def __init__(self, trials: Sequence[Trial] = (), cache: Path | None = None) -> None:
        self._trials = {trial.run.source.digest: trial for trial in trials}
        self._cache = cache
        self._prepared: tuple[str, Gather] | None = None

    def __contains__(self, digest: object) -> bool:
        return digest in self._trials

    def prepare(self, digest: str, progress: Progress = SILENT) -> None:
        """Compute what the system of a source reads of the images."""
        if self._prepared is None or self._prepared[0] != digest:
            self._prepared = None  # frees the memory first
            self._prepared = digest, make_gather(self._trials[digest], self._cache, progress)

    def score(
        self,
        digest: str,
        cell: Cell,
        protocol: Protocol,
        *,
        earlier: Scores | None = None,
        progress: Progress = SILENT,
    ) -> Iterator[Scores]:
        """Yield the result of all tasks so far, after every part and at the end."""
        self.prepare(digest, progress)
        assert self._prepared is not None
        trial, gather, form = self._trials[digest], self._prepared[1], cell.run
        assert isinstance(form, SystemForm)
        system, split = trial.forms[form.name], trial.images.split
        system.head.to(protocol.device)
        system.encoder.backbone.to(protocol.device)
        sampler = image_sampler(split, protocol.spec)

        def score(some: range) -> Tensor:
            found = []
            for chunk in chunk_ranges(len(some), self._tasks_at_once(form, protocol, gather)):
                tasks = range(some.start + chunk.start, some.start + chunk.stop)
                support, query = (part.to(protocol.device) for part in sampler.draw(tasks))
                y_sup, y_qry = (part.to(protocol.device) for part in sampler.labels(tasks))
                log_p = system.log_posterior(
                    gather(support), y_sup, gather(query), protocol.spec.n_way
                )
                if log_p.isnan().any():
                    raise DataError(f"{trial.run.source.name}: gives probabilities that are NaN.")
                found.append(accuracy(log_p, y_qry))
                progress.advance(len(tasks))
            return torch.cat(found)

        at_once = _STORED_AT_ONCE[form.reads]
        parts = score_in_parts(score, protocol, at_once=at_once, earlier=earlier, progress=progress)
        for so_far, scores, seconds in parts:
            yield _row(trial, form, so_far, scores, seconds), scores

    @staticmethod
    def _tasks_at_once(form: SystemForm, protocol: Protocol, gather: Gather) -> int:
        if form.reads == "images":  # each task passes all its images through the network
            return 1
        spec = protocol.spec
        one = gather(torch.zeros(1, 1, dtype=torch.int64, device=protocol.device))
        n_images = spec.n_way * (spec.n_shot + spec.n_query)
        n_bytes = _BYTES_AT_ONCE["cuda" if protocol.device.startswith("cuda") else "cpu"]
        return max(1, min(_MOST_AT_ONCE, n_bytes // (n_images * one.numel() * 4)))


NO_TRIALS = Trials()


def _row(
    trial: Trial, form: SystemForm, protocol: Protocol, accuracies: Tensor, seconds: float
) -> ResultRow:
    mean, half_width = mean_interval(accuracies.double())
    return ResultRow(
        method=form.name,
        assumes=form.assumes,
        mean=100 * mean,
        ci95=100 * half_width,
        **protocol.describe(seconds),
        dtype="float32",
        features=f"{trial.run.source.name} on images",
        features_digest=trial.run.system_digest,
        settings={"reads": form.reads, "training_shots": trial.run.shots},
    )


def make_gather(trial: Trial, cache: Path | None, progress: Progress = SILENT) -> Gather:
    """Compute what a system reads of the images, and return the function that selects from it."""
    device, reads = trial.how.device, trial.system.head.reads
    if reads == "vectors":
        rows = _extract(trial, cache, progress).to(device)
        return lambda positions: rows[positions]
    crops = trial.images.crops(trial.how.sizes(trial.system.encoder), progress).to(device)
    spec = trial.system.encoder.backbone.input_spec
    if reads == "images":

        def normalise(positions: Tensor) -> Tensor:
            images = prepare_images(crops[positions.flatten()], spec)
            return images.view(*positions.shape, *images.shape[1:])

        return normalise
    maps = _keep_maps(trial, crops, progress)
    if maps is not None:
        return lambda positions: maps[positions].float()

    def compute(positions: Tensor) -> Tensor:
        wanted, which = positions.unique(return_inverse=True)
        some = torch.cat(list(_encode_maps(trial, crops[wanted])))
        return some[which]

    return compute


def _extract(trial: Trial, cache: Path | None, progress: Progress) -> Tensor:
    encoder = trial.system.encoder
    kept = None if cache is None else FeatureCache(cache, encoder_provenance(encoder, trial.how))
    table = extract_split(
        trial.images.dataset,
        trial.images.split,
        encoder,
        trial.how,
        cache=kept,
        progress=progress,
    )
    return table.features


def _keep_maps(trial: Trial, crops: Tensor, progress: Progress) -> Tensor | None:
    """Compute the maps of all images in float16; ``None`` if they do not fit, or overflow."""
    (one,) = _encode_maps(trial, crops[:1])
    if len(crops) * one.numel() * 2 > _free_memory(trial.how.device):
        return None
    progress.start("computing feature maps", len(crops), "images")
    maps = one.new_empty(len(crops), *one.shape[1:], dtype=torch.float16)
    n_done = 0
    for batch in _encode_maps(trial, crops):
        maps[n_done : n_done + len(batch)] = batch
        n_done += len(batch)
        progress.advance(len(batch))
    return maps if maps.isfinite().all() else None


@torch.no_grad()
def _encode_maps(trial: Trial, crops: Tensor) -> Iterator[Tensor]:
    """Yield the maps of batches of crops, in float32."""
    backbone = trial.system.encoder.backbone.eval()
    backbone.to(device=torch.device(trial.how.device))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for batch in crops.split(trial.how.images_per_pass()):
            yield backbone.maps(prepare_images(batch, backbone.input_spec)).float()


def _free_memory(device: str) -> float:
    """Return the bytes that maps may take: half of what a GPU has free, a quarter of a machine."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0] / 2
    return total_memory() / 4
