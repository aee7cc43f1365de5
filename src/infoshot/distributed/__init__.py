"""Several processes on one job, as ``torchrun`` starts them; alone it all comes down to nothing."""

from infoshot.distributed.batch_norm import synchronised_batch_norm
from infoshot.distributed.gather import gather_chunks, shard_chunks
from infoshot.distributed.ranks import ALONE, Ranks, joined_ranks, leave_others

__all__ = [
    "ALONE",
    "Ranks",
    "gather_chunks",
    "joined_ranks",
    "leave_others",
    "shard_chunks",
    "synchronised_batch_norm",
]
