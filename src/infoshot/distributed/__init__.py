"""Several processes on one job, started by ``torchrun`` or Ray; a single one needs no setup."""

from infoshot.distributed.batch_norm import synchronise_batch_norm
from infoshot.distributed.gather import gather_chunks, shard_chunks
from infoshot.distributed.ranks import (
    SINGLE_PROCESS,
    Ranks,
    exit_if_distributed,
    is_main_process,
    join_processes,
)
from infoshot.distributed.ray_cluster import EngineLike, RayEngine, find_engine

__all__ = [
    "SINGLE_PROCESS",
    "EngineLike",
    "Ranks",
    "RayEngine",
    "exit_if_distributed",
    "find_engine",
    "gather_chunks",
    "is_main_process",
    "join_processes",
    "shard_chunks",
    "synchronise_batch_norm",
]
