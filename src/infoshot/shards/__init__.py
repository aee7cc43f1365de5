"""One task whose queries are many files of features, on one machine or several."""

from infoshot.shards.api import solve_shards
from infoshot.shards.shard_finder import find_shards
from infoshot.shards.shard_reader import Shard
from infoshot.shards.shard_solve import ShardSummary

__all__ = ["Shard", "ShardSummary", "find_shards", "solve_shards"]
