"""Memory of a solve: how many tasks fit into the cache together, and what does not fit at all."""

from typing import Any

import torch

from infoshot.core.errors import InvalidArgumentError
from infoshot.core.memory import total_memory
from infoshot.core.types import TaskBatch
from infoshot.solvers.solver import Solver

# The working set of a step should fit into a core's share of the cache; on a GPU it should keep all
# multiprocessors busy. The features of a chunk are copied once, so they are bounded too.
WORKING_SET_BYTES = {"cpu": 8 * 2**20, "cuda": 2 * 2**30}
MOST_FEATURE_BYTES = {"cpu": 128 * 2**20, "cuda": 4 * 2**30}
MOST_TASKS_PER_CHUNK = {"cpu": 128, "cuda": 16384}


def tasks_per_chunk(solver: Solver[Any], tasks: TaskBatch) -> int:
    """Number of tasks of this shape to solve together so that a step fits into the cache.

    Examples
    --------
    >>> from infoshot import TimAdm
    >>> from infoshot.tasks import gaussian_tasks
    >>> tasks, _ = gaussian_tasks(n_tasks=1)
    >>> tasks_per_chunk(TimAdm(), tasks)
    128
    """
    device = "cpu" if tasks.z_sup.device.type == "cpu" else "cuda"
    item_size = _item_size(tasks)
    feature_bytes = (tasks.n_sup + tasks.n_qry) * tasks.dim * item_size
    return max(
        1,
        min(
            WORKING_SET_BYTES[device] // (solver.working_set(tasks) * item_size),
            MOST_FEATURE_BYTES[device] // feature_bytes,
            MOST_TASKS_PER_CHUNK[device],
        ),
    )


def check_memory(solver: Solver[Any], tasks: TaskBatch, chunk_size: int) -> None:
    """Refuse tasks whose working set exceeds the memory of the machine, before it is allocated."""
    device = tasks.z_sup.device
    on_gpu = device.type == "cuda"
    there = torch.cuda.get_device_properties(device).total_memory if on_gpu else total_memory()
    n_tasks = min(chunk_size, len(tasks))
    needed = solver.working_set(tasks) * _item_size(tasks) * n_tasks
    if needed > there:
        what = "one task" if n_tasks == 1 else f"{n_tasks} tasks at a time"
        raise InvalidArgumentError(
            f"{type(solver).__name__} needs about {needed / 1e9:,.0f} GB of memory for {what} of "
            f"{tasks.n_sup + tasks.n_qry:,} samples, and this {'GPU' if on_gpu else 'machine'} has "
            f"{there / 1e9:,.0f} GB; use fewer queries, or a method whose memory does not grow "
            "with their square, such as tim-auto or tim-adm (solve_shards reads them in parts)."
        )


def _item_size(tasks: TaskBatch) -> int:
    """Bytes of a number in a solve; half precision is solved in single precision."""
    return max(tasks.z_sup.element_size(), 4)
