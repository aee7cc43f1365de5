"""How well photos of no class are told from the others, on validation classes of mini-ImageNet.

infoshot extract --dataset mini-imagenet --root DIR --split val --backbone efficientnet-lite0
--dtype float32 --out val.safetensors
python scripts/outlier_validation.py val.safetensors

Ten random classes make a pile, some of them have five examples each, the others are strangers.
Several scores are compared, each with the limit that 95 in 100 examples stay below when they are
held out: how many strangers are beyond it, and how many photos of the classes.
"""

import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from infoshot import TaskBatch, solve
from infoshot.core.types import FeatureTable
from infoshot.features import prepare, read_features
from infoshot.solvers import METHODS

Score = Callable[[Tensor, Tensor, Tensor], Tensor]

TRIALS, SHOTS = 20, 5
PILES = ((2, 150), (5, 500), (8, 500), (10, 500), (10, 2000))  # classes with examples, photos
SOLVER = METHODS["tim-auto"].solver


def pile(
    table: FeatureTable, n_known: int, n_photos: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Examples with labels, photos, and which of them are strangers."""
    z = prepare(table, "l2")
    support, queries, strange = [], [], []
    for number, label in enumerate(torch.randperm(16, generator=generator)[:10].tolist()):
        own = (table.labels == label).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        photos = own[SHOTS : SHOTS + n_photos // 10]
        if number < n_known:
            support.append(own[:SHOTS])
        queries.append(photos)
        strange += [number >= n_known] * len(photos)
    y_sup = torch.arange(n_known).repeat_interleave(SHOTS)
    return z[torch.cat(support)], y_sup, z[torch.cat(queries)], torch.tensor(strange)


def by_class_mean(z_sup: Tensor, y_sup: Tensor, z: Tensor) -> Tensor:
    """One minus the cosine with the nearest class mean of the examples."""
    means = torch.stack([z_sup[y_sup == k].mean(0) for k in y_sup.unique()])
    return 1 - (z @ normalize(means, dim=-1).T).amax(1)


def by_nearest_example(z_sup: Tensor, y_sup: Tensor, z: Tensor) -> Tensor:
    """One minus the cosine with the nearest example."""
    return 1 - (z @ z_sup.T).amax(1)


def by_the_solve(z_sup: Tensor, y_sup: Tensor, z: Tensor) -> Tensor:
    """Distance from the prototypes that tim-auto ends with."""
    task = TaskBatch(z_sup[None], y_sup[None], z[None], int(y_sup.max()) + 1)
    return solve(SOLVER, task).outlier_scores[0]


def held_out(score: Score, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor) -> Tensor:
    """Scores of examples, each among 200 photos and without itself in the support."""
    some = z_qry[torch.arange(200) * len(z_qry) // 200] if len(z_qry) > 200 else z_qry
    scores = []
    for number in range(len(z_sup)):
        rest = torch.arange(len(z_sup)) != number
        queries = torch.cat((z_sup[number : number + 1], some))
        scores.append(score(z_sup[rest], y_sup[rest], queries)[0])
    return torch.stack(scores)


def auroc(scores: Tensor, strange: Tensor) -> float:
    """How well scores tell strangers from the others."""
    ranks = scores.argsort().argsort().double() + 1
    n_strange, n_known = int(strange.sum()), int((~strange).sum())
    return float((ranks[strange].sum() - n_strange * (n_strange + 1) / 2) / (n_strange * n_known))


def main() -> None:
    """All piles, all scores."""
    table = read_features(sys.argv[1])
    for n_known, n_photos in PILES:
        for score in (by_class_mean, by_nearest_example, by_the_solve):
            generator = torch.Generator().manual_seed(0)
            rows = []
            for _ in range(TRIALS):
                z_sup, y_sup, z_qry, strange = pile(table, n_known, n_photos, generator)
                scores = score(z_sup, y_sup, z_qry)
                beyond = scores > held_out(score, z_sup, y_sup, z_qry).quantile(0.95)
                found = beyond[strange].float().mean() if strange.any() else math.nan
                area = auroc(scores, strange) if strange.any() else math.nan
                rows.append([area, float(found), float(beyond[~strange].float().mean())])
            area, found, false = (100 * torch.tensor(rows).mean(0)).tolist()
            sys.stdout.write(
                f"{n_known:2} of 10 classes known, {n_photos:4} photos, {score.__name__:18}: "
                f"AUROC {area:.1f}, {found:.0f}% of strangers found, {false:.1f}% false alarms\n"
            )


if __name__ == "__main__":
    main()
