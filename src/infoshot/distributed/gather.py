"""Shard chunks of rows over processes, and gather the results in order."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from infoshot.distributed.ranks import Ranks


def shard_chunks(chunks: Sequence[range], ranks: Ranks) -> list[range]:
    """Return the chunks of this process: every ``size``-th, starting at its rank.

    Examples
    --------
    >>> shard_chunks([range(0, 2), range(2, 4), range(4, 5)], Ranks(rank=1, size=2))
    [range(2, 4)]
    """
    return list(chunks[ranks.rank :: ranks.size])


def gather_chunks(rows: Tensor, chunks: Sequence[range], ranks: Ranks) -> Tensor:
    """Gather the rows of all chunks, in order, from the processes that computed them.

    Parameters
    ----------
    rows
        Rows of the chunks of this process, concatenated.
    chunks
        All chunks; together they cover 0 to n.
    ranks
        The processes.

    Returns
    -------
    Shape ``(n, ...)``, on the CPU, bit for bit equal in all processes.
    """
    if ranks.size == 1:
        return rows.cpu()
    owned = [shard_chunks(chunks, Ranks(rank, ranks.size)) for rank in range(ranks.size)]
    counts = [sum(map(len, own)) for own in owned]
    # All processes must send tensors of one size, so shorter ones are padded.
    part = torch.zeros(max(counts), *rows.shape[1:], dtype=rows.dtype, device=ranks.device)
    part[: len(rows)] = rows.to(ranks.device)
    parts = [torch.empty_like(part) for _ in owned]
    dist.all_gather(parts, part)
    whole = torch.empty(sum(counts), *rows.shape[1:], dtype=rows.dtype)
    for own, count, received in zip(owned, counts, parts, strict=True):
        positions = [position for chunk in own for position in chunk]
        whole[positions] = received[:count].cpu()
    return whole
