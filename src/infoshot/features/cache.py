"""A feature cache that cannot go stale: the name of a file is the digest of all it depends on.

Change the images, the weights, the crop or the version, and the name changes. A file that is
damaged is noticed and made again. Files appear whole or not at all, so any number of processes may
fill the same folder.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from infoshot.errors import DataError
from infoshot.features.files import read_features, write_features
from infoshot.types import FeatureTable


def cache_key(provenance: Mapping[str, str]) -> str:
    """Digest of everything the features depend on.

    Examples
    --------
    >>> cache_key({"a": "1", "b": "2"}) == cache_key({"b": "2", "a": "1"})
    True
    """
    return hashlib.sha256(json.dumps(dict(provenance), sort_keys=True).encode()).hexdigest()


def cached(
    folder: Path, provenance: Mapping[str, str], make: Callable[[], FeatureTable]
) -> FeatureTable:
    """Return the features of this provenance, from the folder or made now and kept there."""
    path = folder / f"{cache_key(provenance)}.safetensors"
    if path.is_file():
        try:
            table = read_features(path)
            if dict(table.provenance) == dict(provenance):
                return table
        except DataError:
            pass  # damaged: made again below
    table = make()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made a folder ({error.strerror}).") from error
    write_features(path, table)
    return table
