"""How good the features are: nearest prototypes on tasks of the validation classes."""

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
    """5-way 1-shot tasks with 15 queries per class, fewer of each where there is not enough.

    On features of unit length the nearest single example is the one of largest cosine. ``labels``
    are -1 for classes with too few images.
    """

    crops: Tensor
    labels: Tensor
    n_tasks: int
    spec: TaskSpec

    def accuracy(self, backbone: Backbone, ranks: Ranks) -> tuple[float, float]:
        """Mean over the tasks and half the width of its 95 % interval, in percent.

        Not a number if a feature is none.
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
    """Validation on these crops; ``None`` unless there are 2 classes with 2 images each.

    Classes count while they are among the five with most images, or have as many as the fifth.
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
