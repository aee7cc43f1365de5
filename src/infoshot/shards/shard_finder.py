"""Find the shards of a folder or of a pattern, and check that they fit together."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from infoshot.core.embedding_column import SUFFIX, has_embeddings
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.places import Place, find_files, open_place
from infoshot.shards.parquet_shard import ParquetColumns, ParquetShard, open_parquet_shard
from infoshot.shards.shard_reader import ACCEPTED, Shard, cannot_be_read, open_shard

_SUFFIXES = (".safetensors", ".npy", SUFFIX)


def find_shards(queries: Place, columns: ParquetColumns | None = None) -> list[Shard]:
    """Open all shards of a folder, or of a pattern, sorted by path.

    Beside shards of other formats, Parquet files without a column of embeddings are ignored.

    Parameters
    ----------
    queries
        The folder or the pattern; a single Parquet file is a shard too.
    columns
        What Parquet shards hold, and where to decode them. ``None``: there are none.

    Raises
    ------
    DataError
        If there are none, a file is not a shard or truncated, or shards do not fit together.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/part0.npy", np.zeros((3, 2), "float16"))
    ...     [shard.name for shard in find_shards(Path(folder))]
    ['part0']
    """
    paths = find_files(queries, _SUFFIXES)
    if paths is None and queries.suffix == SUFFIX:
        paths = [queries]
    if paths is None:
        exists = os.path.exists(str(queries))  # noqa: PTH110 - Path raises if the name is too long
        what = "is a file, not a folder" if exists else "there is no such folder"
        raise DataError(f"{queries}: {what} of shards.")
    if not paths:
        is_folder = isinstance(queries, Path) and queries.is_dir()
        what = "the folder has no shards" if is_folder else "no shards are there"
        raise DataError(f"{queries}: {what}; {ACCEPTED}.")
    if any(path.suffix != SUFFIX for path in paths):  # Parquet beside other shards may be anything
        paths = [path for path in paths if path.suffix != SUFFIX or _has_embeddings(path)]
    shards = [_open(path, columns) for path in paths]
    if columns is not None and not any(isinstance(shard, ParquetShard) for shard in shards):
        columns.check_unused(queries)
    shards = _with_width(shards)
    _check_together(shards)
    if not sum(shard.n_rows for shard in shards):
        raise DataError(f"{queries}: all shards are empty.")
    return shards


def _has_embeddings(path: Place) -> bool:
    try:
        with open_place(path) as source:
            return has_embeddings(str(path), source)
    except OSError as error:
        raise cannot_be_read(path, error) from error


def _open(path: Place, columns: ParquetColumns | None) -> Shard:
    if path.suffix == SUFFIX:
        if columns is None:
            raise InvalidArgumentError(f"columns must be given for the Parquet shard {path}.")
        return open_parquet_shard(path, columns)
    if not isinstance(path, Path):
        raise InvalidArgumentError(f"queries must be Parquet files if they are remote; got {path}.")
    return open_shard(path)


def _with_width(shards: Sequence[Shard]) -> list[Shard]:
    """Give shards without rows, which may not know their width, that of the others."""
    dim = next((shard.dim for shard in shards if shard.dim), 0)
    return [shard if shard.dim else dataclasses.replace(shard, dim=dim) for shard in shards]


def _check_together(shards: Sequence[Shard]) -> None:
    """Require equal widths and different names."""
    by_name = {shard.name: shard for shard in shards}
    for shard in shards:
        if shard.dim != shards[0].dim:
            raise DataError(
                f"{shard.path}: has {shard.dim} features per row, but {shards[0].path.name} has "
                f"{shards[0].dim}."
            )
        if by_name[shard.name] is not shard:
            raise DataError(
                f"{shard.path}: {by_name[shard.name].path.name} has the same name; both would "
                "write the same file of labels."
            )
