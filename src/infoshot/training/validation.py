"""Validation of the features: nearest prototypes on tasks of the validation classes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.backbones import Backbone
from infoshot.core.parallel import chunk_ranges
from infoshot.core.types import FeatureTable
from infoshot.distributed import Ranks, gather_chunks, shard_chunks
from infoshot.features.encoding import encode_batch
from infoshot.metrics import accuracy, mean_interval
from infoshot.solvers import Prototype, solve
from infoshot.tasks.sampler import TaskSpec, sample_tasks

_BATCH = {"cpu": 64, "cuda": 600}
_MOST_WAYS, _MOST_QUERIES = 5, 15


@dataclass(frozen=True, eq=False)
class Validation:
    """5-way 1-shot tasks with 15 queries per class; fewer of each if there are too few images.

    Features have unit length, so the nearest example is the one of the largest cosine.
    ``labels`` are -1 for classes with too few images.
    """

    crops: Tensor
    labels: Tensor
    n_tasks: int
    spec: TaskSpec

    def accuracy(self, backbone: Backbone, ranks: Ranks) -> tuple[float, float]:
        """Return the mean over the tasks and the half-width of its 95 % interval, in percent.

        Both are NaN if a feature is not finite.
        """
        backbone.eval()
        whole = encode_crops(self.crops, lambda images: encode_batch(backbone, images), ranks)
        if not whole.isfinite().all():
            return math.nan, math.nan
        table = FeatureTable(normalize(whole, dim=-1), self.labels)
        tasks, query_labels = sample_tasks(table, self.spec, self.n_tasks)
        solution = solve(Prototype(), tasks)
        mean, half_width = mean_interval(accuracy(solution.probabilities, query_labels))
        return 100 * mean, 100 * half_width


def encode_crops(crops: Tensor, encode: Callable[[Tensor], Tensor], ranks: Ranks) -> Tensor:
    """Encode all crops, shared by the processes, in half precision on a GPU.

    Parameters
    ----------
    crops
        uint8, shape ``(image, 3, height, width)``.
    encode
        Maps a batch of them to features of any shape ``(batch, ...)``.
    ranks
        The processes.

    Returns
    -------
    The features of all crops, on the CPU, the same in all processes.
    """
    kind = torch.device(ranks.device).type
    chunks = chunk_ranges(len(crops), _BATCH.get(kind, 64))
    own = shard_chunks(chunks, ranks)
    with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
        # A process without crops encodes one to know the shape.
        features = [encode(crops[:1].to(ranks.device))[:0]] if not own else []
        features += [encode(crops[c.start : c.stop].to(ranks.device)) for c in own]
    return gather_chunks(torch.cat(features), chunks, ranks).clone()


def make_validation(
    crops: Tensor | None, labels: Tensor | None, n_tasks: int, seed: int
) -> Validation | None:
    """Prepare the validation; ``None`` unless there are 2 classes with 2 images each.

    Examples
    --------
    >>> labels = torch.tensor([0, 0, 0, 1, 1, 1])
    >>> crops = torch.zeros(6, 3, 84, 84, dtype=torch.uint8)
    >>> validation = make_validation(crops, labels, n_tasks=10, seed=0)
    >>> validation.spec.n_way, validation.spec.n_query
    (2, 2)
    """
    chosen = None if labels is None else choose_tasks(labels, seed)
    if crops is None or chosen is None:
        return None
    return Validation(crops, chosen[0], n_tasks, chosen[1])


def choose_tasks(
    labels: Tensor, seed: int, *, n_shot: int = 1, n_way: int | None = None
) -> tuple[Tensor, TaskSpec] | None:
    """Choose classes and size of validation tasks: 5 ways and 15 queries, or what the images allow.

    It uses the five classes with the most images, and those with as many images as the fifth.

    Parameters
    ----------
    labels
        Labels of the validation images.
    seed, n_shot
        Seed of the tasks, and examples per class.
    n_way
        Number of classes that every task must have; ``None``: five, or as many as there are.

    Returns
    -------
    The labels, -1 for classes with too few images, and the tasks; ``None`` if there are none.
    """
    sizes = labels.bincount()
    n_usable = int((sizes > n_shot).sum())
    ways = min(_MOST_WAYS, n_usable) if n_way is None else n_way
    if ways < 2 or ways > n_usable:
        return None
    n_query = min(_MOST_QUERIES, int(sizes.sort(descending=True).values[ways - 1]) - n_shot)
    labels = labels.masked_fill(sizes[labels] < n_query + n_shot, -1)
    return labels, TaskSpec(n_way=ways, n_shot=n_shot, n_query=n_query, seed=seed)
