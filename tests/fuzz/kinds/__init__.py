"""The kinds of input, one module for those that belong together."""

from tests.fuzz.kinds import (
    archives,
    checkpoints,
    command_values,
    features,
    images,
    parquet,
    pickles,
    runs,
    shards,
    sheets,
)
from tests.fuzz.runner import Kind

_MODULES = (
    features, parquet, shards, runs, checkpoints, archives, pickles, sheets, images,
    command_values,
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.name: kind for module in _MODULES for kind in module.KINDS}
