"""One task whose queries are many files of features, on one machine or several."""

from infoshot.shards.api import ShardSummary, Watcher, solve_shards
from infoshot.shards.files import Shard, find_shards

__all__ = ["Shard", "ShardSummary", "Watcher", "find_shards", "solve_shards"]
