"""Synthetic tasks with Gaussian classes, for tests and documentation."""

import torch
from torch import Tensor

from infoshot.core.types import TaskBatch


def gaussian_tasks(
    n_tasks: int = 1,
    *,
    n_way: int = 5,
    n_shot: int = 1,
    n_query: int = 15,
    dim: int = 32,
    separation: float = 3.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> tuple[TaskBatch, Tensor]:
    """Make tasks whose classes are Gaussians around random centres, scaled to unit length.

    ``separation`` is the distance of the centres from the origin; the samples of a class have a
    root mean square distance of one from their centre.

    Returns
    -------
    The tasks, and the query labels, shape ``(task, query)``.

    Examples
    --------
    >>> tasks, query_labels = gaussian_tasks(n_tasks=2, n_way=3)
    >>> tasks.z_qry.shape
    torch.Size([2, 45, 32])
    """
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n_tasks, n_way, 1, dim, generator=generator, dtype=torch.float64)
    centres = torch.nn.functional.normalize(centres, dim=-1) * separation
    shape = (n_tasks, n_way, n_shot + n_query, dim)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64) / dim**0.5
    z = torch.nn.functional.normalize(centres + noise, dim=-1).to(dtype)
    classes = torch.arange(n_way)
    y_sup = classes.repeat_interleave(n_shot).expand(n_tasks, -1)
    y_qry = classes.repeat_interleave(n_query).expand(n_tasks, -1)
    support, query = z.split((n_shot, n_query), dim=2)
    return TaskBatch(support.flatten(1, 2), y_sup, query.flatten(1, 2), n_way), y_qry
