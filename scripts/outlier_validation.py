"""Compare outlier scores on the validation classes of mini-ImageNet.

infoshot extract --dataset mini-imagenet --root DIR --split val --backbone efficientnet-lite0
--dtype float32 --out val.safetensors
python scripts/outlier_validation.py val.safetensors

Each trial draws ten random classes. Some of them have five examples each; images of the others are
out-of-class. The threshold of a score is its 95 % quantile over the held-out examples. The script
prints the AUROC of each score, and which percentages of the out-of-class and of the in-class images
are above the threshold.
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
POOLS = ((2, 150), (5, 500), (8, 500), (10, 500), (10, 2000))  # classes with examples, images
SOLVER = METHODS["tim-auto"].solver


def draw_pool(
    table: FeatureTable, n_known: int, n_images: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw examples with labels, unlabelled images, and the mask of those out of class."""
    z = prepare(table, "l2")
    support, queries, out_of_class = [], [], []
    for number, label in enumerate(torch.randperm(16, generator=generator)[:10].tolist()):
        own = (table.labels == label).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        images = own[SHOTS : SHOTS + n_images // 10]
        if number < n_known:
            support.append(own[:SHOTS])
        queries.append(images)
        out_of_class += [number >= n_known] * len(images)
    y_sup = torch.arange(n_known).repeat_interleave(SHOTS)
    return z[torch.cat(support)], y_sup, z[torch.cat(queries)], torch.tensor(out_of_class)


def by_class_mean(z_sup: Tensor, y_sup: Tensor, z: Tensor) -> Tensor:
    """One minus the cosine similarity to the nearest class mean of the examples."""
    means = torch.stack([z_sup[y_sup == k].mean(0) for k in y_sup.unique()])
    return 1 - (z @ normalize(means, dim=-1).T).amax(1)


def by_nearest_example(z_sup: Tensor, y_sup: Tensor, z: Tensor) -> Tensor:
    """One minus the cosine similarity to the nearest example."""
    return 1 - (z @ z_sup.T).amax(1)


def by_the_solve(z_sup: Tensor, y_sup: Tensor, z: Tensor) -> Tensor:
    """Distance from the final prototypes of tim-auto."""
    task = TaskBatch(z_sup[None], y_sup[None], z[None], int(y_sup.max()) + 1)
    return solve(SOLVER, task).outlier_scores[0]


def held_out_scores(score: Score, z_sup: Tensor, y_sup: Tensor, z_qry: Tensor) -> Tensor:
    """Score each example together with 200 images, with itself removed from the support."""
    some = z_qry[torch.arange(200) * len(z_qry) // 200] if len(z_qry) > 200 else z_qry
    scores = []
    for number in range(len(z_sup)):
        rest = torch.arange(len(z_sup)) != number
        queries = torch.cat((z_sup[number : number + 1], some))
        scores.append(score(z_sup[rest], y_sup[rest], queries)[0])
    return torch.stack(scores)


def auroc(scores: Tensor, out_of_class: Tensor) -> float:
    """Area under the ROC curve of the scores, for detecting out-of-class images."""
    ranks = scores.argsort().argsort().double() + 1
    n_out, n_in = int(out_of_class.sum()), int((~out_of_class).sum())
    return float((ranks[out_of_class].sum() - n_out * (n_out + 1) / 2) / (n_out * n_in))


def main() -> None:
    """Print one line per pool and score."""
    table = read_features(sys.argv[1])
    for n_known, n_images in POOLS:
        for score in (by_class_mean, by_nearest_example, by_the_solve):
            generator = torch.Generator().manual_seed(0)
            rows = []
            for _ in range(TRIALS):
                z_sup, y_sup, z_qry, outside = draw_pool(table, n_known, n_images, generator)
                scores = score(z_sup, y_sup, z_qry)
                above = scores > held_out_scores(score, z_sup, y_sup, z_qry).quantile(0.95)
                found = above[outside].float().mean() if outside.any() else math.nan
                area = auroc(scores, outside) if outside.any() else math.nan
                rows.append([area, float(found), float(above[~outside].float().mean())])
            area, found, false = (100 * torch.tensor(rows).mean(0)).tolist()
            sys.stdout.write(
                f"{n_known:2} classes with examples, {n_images:4} images, {score.__name__:18}: "
                f"AUROC {area:.1f}, {found:.0f}% of outliers found, {false:.1f}% false alarms\n"
            )


if __name__ == "__main__":
    main()
