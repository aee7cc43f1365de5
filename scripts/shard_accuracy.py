"""Accuracy of TIM-auto over shards and in memory, on all images of some classes as one pool.

python scripts/shard_accuracy.py [--features FILE] [--out results/shard_accuracy.json]

The features are those of the validation classes of mini-ImageNet, ResNet-18, unless given.

A pool is all images of 5 or 16 classes, balanced, or with a long tail: each class 0.6 times as
large as the one before, and at least ten images. Classes and examples are drawn anew for each pool,
and all rows of a cell have the same pools. Shards are ``.npy`` files of 1,000 rows in float16.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from infoshot import FeatureTable, TaskBatch, read_features, solve, solve_shards, write_features
from infoshot.core.environment import environment
from infoshot.features import prepare
from infoshot.solvers import METHODS

CELLS = {  # classes, long tail: number of pools, first seed
    (5, False): (12, 0),
    (5, True): (12, 0),
    (16, False): (4, 0),
    (16, True): (16, 1000),
}
OVER_SHARDS = {  # whether the base classes are known, and settings
    "shards, unit length": (False, {}),
    "shards, whitened": (True, {"smoothing": 0.0}),
    "shards, whitened and averaged": (True, {}),
}
IN_MEMORY = {"memory, unit length": "l2", "memory, whitened": "whitened"}
_TAIL, _FEWEST = 0.6, 10


class Pool(NamedTuple):
    """Numbers of the examples and of the queries in the table, and the classes of both."""

    support: Tensor
    queries: Tensor
    y_sup: Tensor
    y_qry: Tensor


def draw_pool(labels: Tensor, n_way: int, long_tail: bool, n_shot: int, seed: int) -> Pool:
    """Draw classes and examples; the other images are the queries."""
    generator = torch.Generator().manual_seed(seed)
    classes = labels.unique()
    chosen = classes[torch.randperm(len(classes), generator=generator)[:n_way]]
    support, queries = [], []
    for place, label in enumerate(chosen):
        rows = (labels == label).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        size = round(_TAIL**place * len(rows)) if long_tail else len(rows)
        support.append(rows[:n_shot])
        queries.append(rows[n_shot : n_shot + max(_FEWEST, size - n_shot)])
    own = [torch.arange(n_way).repeat_interleave(torch.tensor([*map(len, parts)]))
           for parts in (support, queries)]  # fmt: skip
    return Pool(torch.cat(support), torch.cat(queries), *own)


def label_shards(
    table: FeatureTable, pool: Pool, known: bool, settings: Mapping[str, Any]
) -> Tensor:
    """Labels of the queries of a pool, which are written to shards."""
    support, queries, y_sup, _ = pool
    few = dataclasses.replace(table, features=table.features[support], labels=y_sup, class_names=())
    if not known:
        few = FeatureTable(few.features, few.labels)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_features(folder / "support.safetensors", few)
        (folder / "shards").mkdir()
        for number, rows in enumerate(table.features[queries].half().split(1000)):
            np.save(folder / "shards" / f"{number:03}.npy", rows.numpy())
        solve_shards(
            folder / "support.safetensors", folder / "shards", folder / "out",
            method="tim-auto", settings=settings,
        )  # fmt: skip
        files = sorted((folder / "out" / "labels").iterdir())
        return torch.cat([load_file(file)["labels"] for file in files])


def label_in_memory(z: Tensor, pool: Pool) -> Tensor:
    """Labels of the queries of a pool, from prepared features."""
    support, queries, y_sup, _ = pool
    tasks = TaskBatch(z[support][None], y_sup[None], z[queries][None], int(y_sup.max()) + 1)
    return solve(METHODS["tim-auto"].solver, tasks).probabilities[0].argmax(-1)


def measure_cell(
    table: FeatureTable, features: Mapping[str, Tensor], n_way: int, long_tail: bool, n_shot: int
) -> dict[str, list[float]]:
    """Accuracies of all pools in percent, by row."""
    n_pools, first_seed = CELLS[n_way, long_tail]
    found: dict[str, list[float]] = {name: [] for name in (*OVER_SHARDS, *IN_MEMORY)}
    for seed in range(first_seed, first_seed + n_pools):
        pool = draw_pool(table.labels, n_way, long_tail, n_shot, seed)
        labels = {name: label_shards(table, pool, *how) for name, how in OVER_SHARDS.items()}
        labels |= {name: label_in_memory(features[name], pool) for name in IN_MEMORY}
        for name, own in labels.items():
            found[name].append(round(100 * float((own == pool.y_qry).float().mean()), 2))
    return found


def main() -> None:
    """Measure all cells, print their means, and write the accuracies of all pools."""
    parser = argparse.ArgumentParser()
    default = Path("results/training/resnet18/mini_val_resnet18.safetensors")
    parser.add_argument("--features", type=Path, default=default)
    parser.add_argument("--out", type=Path, default=Path("results/shard_accuracy.json"))
    options = parser.parse_args()
    table = read_features(options.features)
    features = {name: prepare(table, how).float() for name, how in IN_MEMORY.items()}
    cells = []
    for n_way, long_tail in CELLS:
        for n_shot in (1, 5):
            found = measure_cell(table, features, n_way, long_tail, n_shot)
            about = {"n_way": n_way, "long_tail": long_tail, "n_shot": n_shot}
            cells.append({**about, "accuracies": found})
            means = {name: round(sum(own) / len(own), 1) for name, own in found.items()}
            print(about, means, flush=True)
    text = {"features": options.features.name, "cells": cells, "environment": environment("cpu")}
    options.out.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
