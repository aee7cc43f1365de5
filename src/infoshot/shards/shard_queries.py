"""The queries of a task over shards: all rows of a process, and rows spread over all shards."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.shards.shard_reader import PickedRows, Shard
from infoshot.shards.shard_task import ROWS_PER_CENTRE, ShardTask
from infoshot.solvers import _kernels, balance
from infoshot.solvers.sharded import half
from infoshot.solvers.sharded.centres import find_centres
from infoshot.solvers.sharded.row_preparation import Measured, RowPreparation
from infoshot.solvers.sharded.rows import Piece, Rows

_SHARE_OF_GPU = 0.6  # of its free memory that features may fill
_COMPARED = 2048  # rows whose lengths are compared with those of the support
_LARGEST_RATIO = 4  # of the lengths of support and queries that one encoder computed


def queries_of(task: ShardTask, shards: Sequence[Shard], preparation: RowPreparation) -> Rows:
    """All rows of some shards, which are read in chunks."""
    pieces = [Piece(str(shard.path), shard.rows()) for shard in shards]
    return task.in_chunks(pieces, preparation)


def own_queries(task: ShardTask, preparation: RowPreparation) -> Rows:
    """Measured queries of this process; in the memory of a GPU if they fit, float16 if they are."""
    own, device = task.own_shards(), task.ranks.device
    rows = queries_of(task, own, preparation)
    if device == "cpu":
        return rows.measure()
    halves = all(shard.dtype == torch.float16 for shard in own)
    fast = halves and len(task.support.names) <= half.MOST_CLASSES
    fast = fast and _kernels.available(torch.device(device))
    rows = dataclasses.replace(rows, as_stored=fast)
    free, _ = torch.cuda.mem_get_info(device)
    if sum(shard.n_bytes for shard in own) > _SHARE_OF_GPU * free:
        return rows.measure()
    held = [_hold(rows, piece, shard) for piece, shard in zip(rows.pieces, own, strict=True)]
    return dataclasses.replace(rows, pieces=held)


def sample_queries(task: ShardTask, n: int, preparation: RowPreparation) -> Tensor:
    """Prepared queries, evenly spaced over all shards, ``(query, dim)``, on the CPU."""
    rows = task.in_chunks(_spread(task, task.shards, n), preparation)
    rows = dataclasses.replace(rows, device="cpu")
    return torch.cat([prepared for _, prepared in rows.map(preparation.apply)])


def find_query_centres(task: ShardTask) -> Tensor:
    """Find the centres that queries are averaged with, ``(centre, dim)``; all processes take part.

    They are means of some of the queries, which are evenly spaced over all shards.
    """
    n, preparation = task.n_centres, task.preparation()
    if not n:
        return torch.empty(0, task.support.z.shape[1])
    pieces = _spread(task, task.own_shards(), n * ROWS_PER_CENTRE)
    start = sample_queries(task, n, preparation)
    return find_centres(task.in_chunks(pieces, preparation), start, task.ranks.sum)


def check_lengths(task: ShardTask) -> None:
    """Raise ``DataError`` if queries that are whitened are not on the scale of the support.

    Other preparations do not depend on the scale.
    """
    if task.support.base is None:
        return
    rows = task.in_chunks(_spread(task, task.shards, _COMPARED))
    found = torch.cat([scales for _, scales in rows.map(lambda _, scales: scales)])
    length = 1 / float(found.median())
    if not 1 / _LARGEST_RATIO <= length / task.support.length <= _LARGEST_RATIO:
        raise DataError(
            f"{task.shards[0].path}: the median length of rows of the shards is {length:.3g}, that "
            f"of the support {task.support.length:.3g}; features that are whitened must be as one "
            "encoder gives them, in both. If those of the shards were scaled to unit length, scale "
            "the support too: then nothing is whitened."
        )


def _spread(task: ShardTask, shards: Sequence[Shard], n: int) -> list[Piece]:
    """Those of ``n`` rows, evenly spaced over all shards, that are in these shards."""
    wanted = balance.evenly_spaced(task.n_queries, n)
    ends = torch.tensor([shard.n_rows for shard in task.shards]).cumsum(0)
    parts = wanted.tensor_split(torch.searchsorted(wanted, ends)[:-1])
    chosen = {shard.name for shard in shards}
    pieces = []
    for shard, part, end in zip(task.shards, parts, ends.tolist(), strict=True):
        if shard.name in chosen and len(part):
            numbers = (part - (end - shard.n_rows)).tolist()
            picked = PickedRows(shard.rows(), numbers)
            pieces.append(Piece(str(shard.path), picked, numbers=numbers))
    return pieces


def _hold(rows: Rows, piece: Piece, shard: Shard) -> Piece:
    """Read a piece into the memory of the device, with its centres added."""
    z = torch.empty(shard.n_rows, shard.dim, dtype=shard.dtype, device=rows.device)
    scales = torch.empty(shard.n_rows, 1, device=rows.device)
    done = 0
    stored = dataclasses.replace(rows, pieces=[piece], as_stored=True)
    for n_new, (some, found) in stored.map(lambda some, found: (some, found)):
        z[done : done + n_new], scales[done : done + n_new] = some, found
        done += n_new
    return Piece(piece.name, z, measured=Measured.without_centres(scales))
