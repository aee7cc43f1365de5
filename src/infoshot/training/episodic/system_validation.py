"""Validation of a few-shot system: its own rule on tasks of the validation classes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from infoshot.core.parallel import chunk_ranges
from infoshot.core.types import FeatureTable
from infoshot.distributed import Ranks, gather_chunks, shard_chunks
from infoshot.features.encoding import prepare_images
from infoshot.metrics import accuracy, mean_interval
from infoshot.tasks.sampler import TaskSampler, TaskSpec
from infoshot.training.batches import move_if_it_fits
from infoshot.training.episodic.episodic_network import EpisodicNetwork
from infoshot.training.validation import choose_tasks, encode_crops

# Numbers in the samples of the tasks that are classified together, by kind of device.
_NUMBERS = {"cpu": 2**21, "cuda": 2**24}


@dataclass(frozen=True, eq=False)
class SystemValidation:
    """Tasks of the validation classes: five classes, 15 queries of each, or what there is.

    Parameters
    ----------
    samples
        Crops, uint8 ``(image, 3, height, width)``, or features ``(image, dim)``.
    labels
        -1 for classes with too few images.
    n_tasks, spec
        Number of tasks, and what they are.
    """

    samples: Tensor
    labels: Tensor
    n_tasks: int
    spec: TaskSpec

    @torch.no_grad()
    def accuracy(self, network: EpisodicNetwork, ranks: Ranks) -> tuple[float, float]:
        """Return the mean over the tasks and the half-width of its 95 % interval, in percent.

        Both are NaN if a probability is not finite.
        """
        network.eval()
        samples = self._encode(network, ranks)
        sampler = TaskSampler(FeatureTable(samples, self.labels), self.spec)
        support, query = sampler.draw(range(1))
        per_task = (support.numel() + query.numel()) * samples[0].numel()
        at_once = _NUMBERS.get(torch.device(ranks.device).type, 2**21) // per_task
        chunks = chunk_ranges(self.n_tasks, max(1, at_once))
        own = [_classify(network, samples, sampler, c, ranks) for c in shard_chunks(chunks, ranks)]
        empty = torch.empty(0, dtype=torch.float64)
        scores = gather_chunks(torch.cat([empty, *own]), chunks, ranks)
        if not scores.isfinite().all():
            return math.nan, math.nan
        mean, half_width = mean_interval(scores)
        return 100 * mean, 100 * half_width

    def _encode(self, network: EpisodicNetwork, ranks: Ranks) -> Tensor:
        """Return what tasks are drawn from: features, or crops where these take less memory."""
        if network.on_features or network.head.reads != "vectors":
            return self.samples
        spec = network.backbone.input_spec
        encoded = encode_crops(
            self.samples, lambda crops: network.encode(prepare_images(crops, spec)), ranks
        )
        return move_if_it_fits(encoded, ranks.device)


def _classify(
    network: EpisodicNetwork, samples: Tensor, sampler: TaskSampler, tasks: range, ranks: Ranks
) -> Tensor:
    """Return the accuracy of each task, on the CPU; NaN if a probability is not finite."""
    y_sup, y_qry = sampler.labels(tasks)

    def read(positions: Tensor) -> Tensor:
        z = samples[positions.to(samples.device)].to(ranks.device)
        if z.dtype != torch.uint8:
            return z
        images = prepare_images(z.flatten(0, 1), network.backbone.input_spec)
        return network.encode(images).unflatten(0, positions.shape)  # type: ignore[no-any-return]

    z_sup, z_qry = (read(positions) for positions in sampler.draw(tasks))
    head, n_way = network.head, sampler.spec.n_way
    p = head.log_posterior(z_sup, y_sup.to(ranks.device), z_qry, n_way).exp()
    right = accuracy(p, y_qry.to(ranks.device)).double()
    return right.where(p.isfinite().flatten(1).all(1), torch.nan).cpu()


def make_system_validation(
    samples: Tensor | None,
    labels: Tensor | None,
    n_tasks: int,
    seed: int,
    *,
    n_shot: int,
    n_way: int | None = None,
) -> SystemValidation | None:
    """Prepare the validation; ``None`` if there are too few classes or images.

    ``n_way`` is the number of classes of a head that can only classify that many.
    """
    chosen = None if labels is None else choose_tasks(labels, seed, n_shot=n_shot, n_way=n_way)
    if samples is None or chosen is None:
        return None
    return SystemValidation(samples, chosen[0], n_tasks, chosen[1])
