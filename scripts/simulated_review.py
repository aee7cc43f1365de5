"""A simulated person reviews a pool of photos: accuracy by number of actions and order of review.

infoshot extract --dataset mini-imagenet --root DIR --split test --backbone efficientnet-lite0
--dtype float32 --out mini.safetensors      (and the same with --dataset cub)
python scripts/simulated_review.py --set mini-imagenet --features mini.safetensors
--out results/simulated_review.json
python scripts/simulated_review.py --set cub --features cub.safetensors --actions 2700
--out results/simulated_review.json --plot docs/simulated-review.png

The first ten classes of mini-ImageNet and all classes of CUB have five examples each; every other
image of these classes is a photo of the pool. The review starts from the labels of the default
method. The person knows the true labels, and acts in one of two ways:

- a single answer: one photo is accepted or corrected (1 action);
- a page: the next 40 photos of the order are viewed. Each wrong one is corrected (1 action
  each), then the others are accepted together (1 action). Class pages hold photos of one predicted
  class: that with most expected errors among its unanswered photos.

After every 10 actions (from 200 on every 50, from 1,000 on every 100) the pool is solved again with
all answers as examples, and the accuracy of the whole pool is recorded; answered photos count with
their answers. A page is finished before the pool is solved.

The solves are those of ``decide_labels``, made cheaper: the neighbours of all photos are found
once, features are projected on their first principal directions (``--dim``), and the exponent that
calibrates the confidences is renewed in every fifth solve.
"""

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from infoshot import FeatureTable, TaskBatch, solve
from infoshot.core.environment import environment
from infoshot.features import read_features
from infoshot.labelling.calibrate import calibrate, hold_out
from infoshot.labelling.classifier import prepare_features
from infoshot.labelling.decide import choose_suggestions
from infoshot.solvers import METHODS

METHOD = METHODS["tim-auto"]
SMOOTHED = METHOD.with_settings({"smoothing": 0.0})  # for queries that are smoothed already
N_CLASSES = {"mini-imagenet": 10, "cub": 50}
SHOTS, PAGE = 5, 40
NEIGHBOURS = 64  # stored for each photo; the nearest eight that are not answered are used
SCHEDULE = {200: 10, 1000: 50, math.inf: 100}  # actions between solves, by actions so far
SOLVES_PER_CALIBRATION = 5
GOALS = (0.95, 0.98)
STOP = 0.985  # accuracy that ends a review


@dataclass(frozen=True, eq=False)
class Pool:
    """Examples and photos with their true classes."""

    z_sup: Tensor
    y_sup: Tensor
    z: Tensor
    truth: Tensor
    n_classes: int

    @cached_property
    def neighbours(self) -> tuple[Tensor, Tensor]:
        """Nearest photos of each photo, and minus half their squared distances."""
        half = self.z.square().sum(-1) / 2
        found = []
        for first in range(0, len(self.z), 500):
            nearness = self.z[first : first + 500] @ self.z.T - half
            nearness.diagonal(first).fill_(-torch.inf)
            found.append(nearness.topk(NEIGHBOURS))
        return torch.cat([f.indices for f in found]), torch.cat([f.values for f in found])

    def smooth(self, asked: Tensor) -> Tensor:
        """Average photos with their nearest among them, as ``TimAuto`` does."""
        solver = METHOD.solver
        near, nearness = (rows[asked] for rows in self.neighbours)
        kept = asked[near] & (asked[near].cumsum(-1) <= solver.n_neighbours)
        share = torch.softmax((20 * nearness).masked_fill_(~kept, -torch.inf), dim=-1).nan_to_num_()
        means = embedding_bag(near, self.z, mode="sum", per_sample_weights=share)
        mixed = solver.smoothing * means + (1 - solver.smoothing) * self.z[asked]
        return normalize(mixed, dim=-1)


def project(features: Tensor, dim: int) -> Tensor:
    """Project unit-length features on their first principal directions."""
    z = normalize(features, dim=-1)
    return z @ torch.linalg.eigh(z.T @ z).eigenvectors[:, -dim:]


def draw_pool(table: FeatureTable, n_classes: int, dim: int, seed: int) -> Pool:
    """Draw the examples of the first classes; every other image is a photo of the pool."""
    generator = torch.Generator().manual_seed(seed)
    examples, photos = [], []
    for label in range(n_classes):
        own = (table.labels == label).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=generator)]
        examples.append(own[:SHOTS])
        photos.append(own[SHOTS:])
    sup, pool = torch.cat(examples), torch.cat(photos)
    z = prepare_features(project(table.features[torch.cat((sup, pool))], dim), METHOD, None)
    labels = table.labels
    return Pool(z[: len(sup)], labels[sup], z[len(sup) :], labels[pool], n_classes)


@dataclass(eq=False)
class Review:
    """The state of a review: the answers so far, what they cost, and the last solve."""

    pool: Pool
    generator: torch.Generator
    answered: Tensor  # mask of the photos
    n_actions: int = 0
    n_viewed: int = 0
    n_solves: int = 0
    exponent: float = 1.0
    probabilities: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def known(self) -> Tensor:
        """Features of the examples and of the answered photos."""
        return torch.cat((self.pool.z_sup, self.pool.z[self.answered]))

    def answer(self, numbers: Sequence[int], n_actions: int) -> None:
        """Give photos their true labels, in a number of actions."""
        self.answered[numbers] = True
        self.probabilities[numbers] = torch.eye(self.pool.n_classes)[self.pool.truth[numbers]]
        self.n_actions += n_actions
        self.n_viewed += len(numbers)

    def actions_to_solve(self) -> int:
        """Return the number of actions before the pool is solved again."""
        return next(n for end, n in SCHEDULE.items() if self.n_actions < end)

    def solve(self) -> None:
        """Solve the pool with all answers as examples."""
        pool, asked = self.pool, ~self.answered
        self.probabilities = torch.eye(pool.n_classes)[pool.truth]
        if not asked.any():
            return
        z_sup = self.known
        y_sup = torch.cat((pool.y_sup, pool.truth[self.answered]))
        tasks = TaskBatch(z_sup[None], y_sup[None], pool.smooth(asked)[None], pool.n_classes)
        if self.n_solves % SOLVES_PER_CALIBRATION == 0:
            usable = torch.arange(len(y_sup)) < len(pool.y_sup)
            held = hold_out(METHOD, z_sup, y_sup, pool.z[asked], pool.n_classes, usable)
            self.exponent = held.exponent()
        solution = solve(SMOOTHED.solver, tasks)
        self.probabilities[asked] = calibrate(solution.probabilities[0], self.exponent)
        self.n_solves += 1

    def accuracy(self) -> float:
        """Return the share of the pool whose label is right."""
        return float((self.probabilities.argmax(-1) == self.pool.truth).double().mean())


Ranking = Callable[[Review, int], list[int]]
Step = Callable[[Review], None]


def rank_suggested(review: Review, n: int) -> list[int]:
    """Return the order of ``infoshot suggest``."""
    found = choose_suggestions(review.pool.z, review.probabilities, review.known, n)
    return found or rank_doubtful(review, n)  # none if all photos are certain


def rank_doubtful(review: Review, n: int) -> list[int]:
    """Return the photos with the smallest margin between their two best classes."""
    best = review.probabilities.topk(2, dim=-1).values
    margin = (best[:, 0] - best[:, 1]).masked_fill_(review.answered, 2)
    return margin.argsort()[:n].tolist()


def rank_random(review: Review, n: int) -> list[int]:
    """Return random photos."""
    numbers = (~review.answered).nonzero().flatten()
    return numbers[torch.randperm(len(numbers), generator=review.generator)[:n]].tolist()


def rank_class(review: Review, n: int) -> list[int]:
    """Return the least confident photos of the class with most expected errors."""
    confidence, label = review.probabilities.max(-1)
    asked = ~review.answered
    errors = torch.bincount(label, (1 - confidence + 1e-6) * asked)
    own = ((label == errors.argmax()) & asked).nonzero().flatten()
    return own[confidence[own].argsort()][:n].tolist()


def rank_class_confident(review: Review, n: int) -> list[int]:
    """Return the most confident photos of the class with most expected errors."""
    return rank_class(review, len(review.answered))[::-1][:n]


def one_by_one(rank: Ranking) -> Step:
    """Answer the first photos of an order, one action each."""

    def step(review: Review) -> None:
        chosen = rank(review, review.actions_to_solve())
        review.answer(chosen, len(chosen))

    return step


def by_pages(rank: Ranking) -> Step:
    """View pages of an order: correct what is wrong, and accept the rest in one action."""

    def step(review: Review) -> None:
        end = review.n_actions + review.actions_to_solve()
        while review.n_actions < end and not review.answered.all():
            page = rank(review, PAGE)
            label = review.probabilities[page].argmax(-1)
            review.answer(page, 1 + int((review.pool.truth[page] != label).sum()))

    return step


ORDERS: dict[str, Step] = {
    "suggested": one_by_one(rank_suggested),
    "doubtful": one_by_one(rank_doubtful),
    "random": one_by_one(rank_random),
    "suggested pages": by_pages(rank_suggested),
    "doubtful pages": by_pages(rank_doubtful),
    "random pages": by_pages(rank_random),
    "class pages": by_pages(rank_class),
    "confident class pages": by_pages(rank_class_confident),
}


def simulate(pool: Pool, step: Step, n_actions: int, seed: int) -> Iterator[tuple[int, int, float]]:
    """Yield actions, photos viewed and accuracy after every solve of a review."""
    generator = torch.Generator().manual_seed(seed)
    review = Review(pool, generator, torch.zeros(len(pool.truth), dtype=torch.bool))
    while True:
        review.solve()
        accuracy = round(review.accuracy(), 4)
        yield review.n_actions, review.n_viewed, accuracy
        if accuracy >= STOP or review.n_actions >= n_actions:
            return
        step(review)


def summarize(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each order needs on each set, over all draws."""
    summary = []
    for data, order in dict.fromkeys((row["set"], row["order"]) for row in rows):
        own = [row["points"] for row in rows if (row["set"], row["order"]) == (data, order)]
        summary.append(
            {
                "set": data,
                "order": order,
                "draws": len(own),
                "start": statistics.mean(points[0][2] for points in own),
                "end": statistics.mean(points[-1][2] for points in own),
                "actions": max(points[-1][0] for points in own),
                **{f"{goal:.0%}": cost_of_goal(own, goal) for goal in GOALS},
            }
        )
    return summary


def cost_of_goal(
    reviews: Sequence[Sequence[tuple[int, int, float]]], goal: float
) -> dict[str, float] | None:
    """Return the cost of an accuracy: mean and range of the actions, mean of the photos viewed.

    ``None`` if a review ends without it.
    """
    found = [next((point for point in points if point[2] >= goal), None) for points in reviews]
    reached = [point for point in found if point is not None]
    if len(reached) < len(found):
        return None
    actions = [n_actions for n_actions, _, _ in reached]
    return {
        "actions": statistics.mean(actions),
        "lowest": min(actions),
        "highest": max(actions),
        "photos": statistics.mean(n_viewed for _, n_viewed, _ in reached),
    }


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw mean accuracy against actions and against photos viewed, a column for each set."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    sets = list(dict.fromkeys(row["set"] for row in rows))
    orders = list(dict.fromkeys(row["order"] for row in rows))
    colours = list(dict.fromkeys(order.removesuffix(" pages") for order in orders))
    figure, panels = plt.subplots(
        2, len(sets), figsize=(4.5 * len(sets), 6), sharey="col", squeeze=False
    )
    for (column, data), order in itertools.product(enumerate(sets), orders):
        own = [row["points"] for row in rows if (row["set"], row["order"]) == (data, order)]
        if not own:
            continue
        style = {
            "color": f"C{colours.index(order.removesuffix(' pages'))}",
            "linestyle": "--" if order.endswith("pages") else "-",
        }
        for axis, panel in enumerate(panels[:, column]):
            x, y = mean_curve(own, axis)
            panel.plot(x, 100 * y, label=order, linewidth=1.2, **style)
    for column, data in enumerate(sets):
        panels[0, column].set(title=data, xlabel="actions", ylabel="correct labels (%)")
        panels[1, column].set(xlabel="photos viewed", ylabel="correct labels (%)")
    for panel in panels.flat:
        for goal in GOALS:
            panel.axhline(100 * goal, color="0.8", linewidth=0.8, zorder=0)
    panels[1, 0].legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def mean_curve(
    reviews: Sequence[Sequence[tuple[int, int, float]]], axis: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean accuracy of reviews, as far as the shortest of them goes."""
    end = min(points[-1][axis] for points in reviews)
    x = np.linspace(0, end, 100)
    curves = [
        np.interp(x, [point[axis] for point in points], [point[2] for point in points])
        for points in reviews
    ]
    return x, np.mean(curves, axis=0)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", required=True, choices=N_CLASSES)
    parser.add_argument("--features", type=Path, required=True)
    usual = ",".join(order for order in ORDERS if order != "confident class pages")
    parser.add_argument("--orders", default=usual, help=f"of: {', '.join(ORDERS)}")
    parser.add_argument("--actions", type=int, default=1500, help="the longest review")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the examples")
    parser.add_argument("--dim", type=int, default=128, help="principal directions kept")
    parser.add_argument("--out", type=Path, required=True, help="other sets in it are kept")
    parser.add_argument("--plot", type=Path, help="figure of all sets in the file")
    return parser.parse_args()


def main() -> None:
    """Run the reviews of one set, two at a time, and write after each of them."""
    given = parse_arguments()
    torch.set_num_threads(1)
    table = read_features(given.features)
    document = json.loads(given.out.read_text()) if given.out.exists() else {"sets": {}, "rows": []}
    document["sets"][given.set] = {
        "provenance": table.provenance,
        "actions": given.actions,
        "dim": given.dim,
        "environment": environment(),
    }
    rows = [row for row in document["rows"] if row["set"] != given.set]

    def run(job: tuple[int, str]) -> dict[str, Any]:
        seed, order = job
        pool = draw_pool(table, N_CLASSES[given.set], given.dim, seed)
        points = list(simulate(pool, ORDERS[order], given.actions, seed))
        return {"set": given.set, "order": order, "seed": seed, "points": points}

    with ThreadPoolExecutor(2) as workers:
        for row in workers.map(run, itertools.product(range(given.seeds), given.orders.split(","))):
            rows.append(row)
            sys.stdout.write(f"{given.set}, {row['order']}, draw {row['seed']}\n")
            sys.stdout.flush()
            document |= {"summary": summarize(rows), "rows": rows}
            given.out.write_text(json.dumps(document) + "\n")
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
