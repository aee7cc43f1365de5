"""A feature cache that cannot go stale: the name of a file is the digest of all it depends on.

Change the images, the weights, the crop or the version, and the name changes. A file that was
truncated is noticed and made again. Files appear whole or not at all, so any number of processes
may fill the same folder.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from infoshot.core.atomic import make_folder
from infoshot.core.errors import DataError
from infoshot.core.types import FeatureTable
from infoshot.distributed import SINGLE_PROCESS, Ranks
from infoshot.features.files import read_features, write_features


def cache_key(provenance: Mapping[str, str]) -> str:
    """Digest of everything the features depend on.

    Examples
    --------
    >>> cache_key({"a": "1", "b": "2"}) == cache_key({"b": "2", "a": "1"})
    True
    """
    return hashlib.sha256(json.dumps(dict(provenance), sort_keys=True).encode()).hexdigest()


def cached(
    folder: Path,
    provenance: Mapping[str, str],
    make: Callable[[], FeatureTable],
    ranks: Ranks = SINGLE_PROCESS,
) -> FeatureTable | None:
    """Features of this provenance, from the folder or made now and kept there.

    With several processes the main one looks and decides; all of them make, or none. The others
    get ``None`` for what the main one found.
    """
    path = folder / f"{cache_key(provenance)}.safetensors"
    kept = _read(path, provenance) if ranks.is_main else None
    if ranks.broadcast_flag(kept is not None):
        return kept
    table = make()
    if ranks.is_main:
        make_folder(folder)
        write_features(path, table)
    return table


def _read(path: Path, provenance: Mapping[str, str]) -> FeatureTable | None:
    """Return what is kept, unless it is missing, damaged or something else."""
    if not path.is_file():
        return None
    try:
        table = read_features(path)
    except DataError:
        return None
    return table if dict(table.provenance) == dict(provenance) else None
