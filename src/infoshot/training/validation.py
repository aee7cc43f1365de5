"""How good the features are: nearest prototypes on tasks of the validation classes."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot.backbones import Backbone
from infoshot.data.tasks import TaskSpec, sample_tasks
from infoshot.distributed import Ranks, gather_chunks, shard_chunks
from infoshot.features.extract import encode
from infoshot.metrics import accuracy, mean_interval
from infoshot.parallel import chunk_ranges
from infoshot.solvers import Prototype, solve
from infoshot.types import FeatureTable

_BATCH = {"cpu": 64, "cuda": 600}
_MOST_WAYS, _MOST_QUERIES = 5, 15


@dataclass(frozen=True, eq=False)
class Validation:
    """5-way 1-shot tasks with 15 queries per class, fewer of each where there is not enough.

    On features of unit length the nearest single example is the one of largest cosine.
    """

    crops: Tensor
    labels: Tensor
    n_tasks: int
    seed: int

    def spec(self) -> TaskSpec:
        """Return the tasks that can be drawn."""
        sizes = self.labels.bincount()
        sizes = sizes[sizes > 0]
        return TaskSpec(
            n_way=min(_MOST_WAYS, len(sizes)),
            n_query=min(_MOST_QUERIES, int(sizes.min()) - 1),
            seed=self.seed,
        )

    def possible(self) -> bool:
        """Whether tasks can be drawn: from at least 2 classes with 2 images each."""
        spec = self.spec()
        return spec.n_way >= 2 and spec.n_query >= 1

    def accuracy(self, backbone: Backbone, ranks: Ranks) -> tuple[float, float]:
        """Mean over the tasks and half the width of its 95 % interval, in percent."""
        kind = torch.device(ranks.device).type
        chunks = chunk_ranges(len(self.crops), _BATCH.get(kind, 64))
        backbone.eval()
        features = [torch.empty(0, backbone.feature_dim, device=ranks.device)]
        with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            for chunk in shard_chunks(chunks, ranks):
                images = self.crops[chunk.start : chunk.stop].to(ranks.device)
                features.append(encode(backbone, images))
        whole = gather_chunks(torch.cat(features), chunks, ranks).clone()
        table = FeatureTable(normalize(whole, dim=-1), self.labels)
        tasks, query_labels = sample_tasks(table, self.spec(), self.n_tasks)
        solution = solve(Prototype(), tasks)
        mean, half_width = mean_interval(accuracy(solution.probabilities, query_labels))
        return 100 * mean, 100 * half_width
