"""Several processes on one job, as ``torchrun`` starts them; a single process needs no setup."""

from infoshot.distributed.batch_norm import synchronise_batch_norm
from infoshot.distributed.gather import gather_chunks, shard_chunks
from infoshot.distributed.ranks import (
    SINGLE_PROCESS,
    Ranks,
    exit_if_distributed,
    is_main_process,
    join_processes,
)

__all__ = [
    "SINGLE_PROCESS",
    "Ranks",
    "exit_if_distributed",
    "gather_chunks",
    "is_main_process",
    "join_processes",
    "shard_chunks",
    "synchronise_batch_norm",
]
