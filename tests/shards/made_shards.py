"""Shards in both formats on disk, and the same rows in memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from infoshot import TaskBatch
from infoshot.core.types import FeatureTable
from infoshot.features import write_features

SIZES = (700, 1, 0, 1299, 400)  # different sizes, one row, no row
N_CLASSES, DIM = 7, 24


@dataclass
class OnDisk:
    """A support file and a folder of shards, and their rows in memory."""

    support: Path
    queries: Path
    z_sup: Tensor
    y_sup: Tensor
    z_qry: Tensor

    def task(self, dtype=torch.float64):
        z_sup, z_qry = (
            torch.nn.functional.normalize(z.to(dtype), dim=-1) for z in (self.z_sup, self.z_qry)
        )
        return TaskBatch(z_sup[None], self.y_sup[None], z_qry[None], N_CLASSES)


def make_shards(folder, *, half=True, seed=0, noise=0.25, shares=None, sizes=SIZES):
    """Gaussian classes: a support file, and shards in both formats."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(torch.randn(N_CLASSES, DIM, generator=generator), dim=1)

    def draw(y):
        z = centres[y] + noise * torch.randn(len(y), DIM, generator=generator)
        return (3 * z).half() if half else 3 * z

    y_sup = torch.arange(N_CLASSES).repeat(3)
    z_sup = draw(y_sup).float()
    weights = torch.ones(N_CLASSES) if shares is None else torch.tensor(shares, dtype=torch.float64)
    y_qry = torch.multinomial(weights, sum(sizes), replacement=True, generator=generator)
    z_qry = draw(y_qry)
    names = tuple("abcdefg")
    write_features(folder / "support.safetensors", FeatureTable(z_sup, y_sup, None, names))
    queries = folder / "queries"
    queries.mkdir()
    for number, rows in enumerate(z_qry.split(sizes)):
        if number % 2:
            np.save(queries / f"part{number}.npy", rows.numpy())
        else:
            save_file({"features": rows.contiguous()}, queries / f"part{number}.safetensors")
    return OnDisk(folder / "support.safetensors", queries, z_sup, y_sup, z_qry.float())
