"""One task whose queries are many files of features, on one machine or several."""

from infoshot.shards.files import Shard, find_shards
from infoshot.shards.job import ShardSummary, Watcher, solve_shards

__all__ = ["Shard", "ShardSummary", "Watcher", "find_shards", "solve_shards"]
