"""Validation of the features: nearest prototypes on tasks of the validation classes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.backbones import Backbone
from infoshot.core.parallel import chunk_ranges
from infoshot.core.types import FeatureTable
from infoshot.distributed import Ranks, gather_chunks, shard_chunks
from infoshot.features.extract import encode_batch
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
        kind = torch.device(ranks.device).type
        chunks = chunk_ranges(len(self.crops), _BATCH.get(kind, 64))
        backbone.eval()
        features = [torch.empty(0, backbone.feature_dim, device=ranks.device)]
        with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            for chunk in shard_chunks(chunks, ranks):
                images = self.crops[chunk.start : chunk.stop].to(ranks.device)
                features.append(encode_batch(backbone, images))
        whole = gather_chunks(torch.cat(features), chunks, ranks).clone()
        if not whole.isfinite().all():
            return math.nan, math.nan
        table = FeatureTable(normalize(whole, dim=-1), self.labels)
        tasks, query_labels = sample_tasks(table, self.spec, self.n_tasks)
        solution = solve(Prototype(), tasks)
        mean, half_width = mean_interval(accuracy(solution.probabilities, query_labels))
        return 100 * mean, 100 * half_width


def make_validation(
    crops: Tensor | None, labels: Tensor | None, n_tasks: int, seed: int
) -> Validation | None:
    """Prepare the validation; ``None`` unless there are 2 classes with 2 images each.

    It uses the five classes with the most images, and those with as many images as the fifth.
    """
    if crops is None or labels is None:
        return None
    sizes = labels.bincount()
    n_way = min(_MOST_WAYS, int((sizes >= 2).sum()))
    if n_way < 2:
        return None
    n_query = min(_MOST_QUERIES, int(sizes.sort(descending=True).values[n_way - 1]) - 1)
    labels = labels.masked_fill(sizes[labels] <= n_query, -1)
    return Validation(crops, labels, n_tasks, TaskSpec(n_way=n_way, n_query=n_query, seed=seed))
