"""Shards that are Parquet files with a column of embeddings.

A solve reads all rows twice in each of its iterations. Parquet is compressed and encoded, so every
file is decoded once, batch by batch, into a ``.npy`` file in the folder of the results. A solve
that resumes finds these copies, and one that is finished removes them.
"""

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from infoshot.core.atomic import make_folder, open_atomically
from infoshot.core.embedding_column import EmbeddingFile, open_embeddings
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.kept_columns import choose_kept, read_kept
from infoshot.core.memory import release_arrow_memory
from infoshot.core.places import Place, find_version, open_place
from infoshot.shards.shard_reader import (
    Shard,
    ShardRows,
    cannot_be_read,
    has_changed,
    open_shard,
)

if TYPE_CHECKING:
    import pyarrow as pa

_STORED = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float32}
_COPY = re.compile(r"[0-9a-f]{32}\.npy")


@dataclass(frozen=True)
class ParquetColumns:
    """What Parquet shards hold.

    Parameters
    ----------
    copies
        Folder for the decoded embeddings.
    column
        The embeddings; ``None``: the only column of lists of floating-point numbers.
    keep
        Columns that go with the labels; ``None``: all that can be kept.
    """

    copies: Path
    column: str | None = None
    keep: Sequence[str] | None = None

    def check_unused(self, queries: Place) -> None:
        """Raise ``InvalidArgumentError`` if there is no Parquet shard for these settings."""
        if self.keep is not None:
            raise InvalidArgumentError(
                f"keep must be left out for {queries}, which has no Parquet shards; got "
                f"{list(self.keep)!r:.80}."
            )


@dataclass(frozen=True)
class ParquetShard(Shard):
    """A Parquet file of features; ``column`` is that of its embeddings."""

    columns: ParquetColumns
    column: str

    def rows(self) -> ShardRows:
        """All features, which are decoded if they have not been yet.

        Raises
        ------
        DataError
            If the file has changed since it was opened, or an embedding cannot be used.
        """
        self.decode()
        return open_shard(self.copy).rows()

    def fingerprint(self) -> str:
        """What identifies this version of the shard."""
        return f"{super().fingerprint()}, column {self.column}"

    @property
    def copy(self) -> Path:
        """The file of its decoded embeddings; the name says of which version of which file."""
        about = hashlib.sha256(f"{self.path} {self.fingerprint()}".encode(errors="replace"))
        return self.columns.copies / f"{about.hexdigest()[:32]}.npy"

    def decode(self) -> None:
        """Decode the embeddings unless that is done."""
        if self.copy.exists():
            return
        make_folder(self.columns.copies)
        dtype = np.dtype(str(self.dtype).removeprefix("torch."))
        header = {"descr": dtype.str, "fortran_order": False, "shape": (self.n_rows, self.dim)}
        with open_atomically(self.copy) as file, self._open() as embeddings:
            np.lib.format.write_array_header_1_0(file, header)
            for batch in embeddings.batches():
                with np.errstate(over="ignore"):  # of float64; rows that are not finite are named
                    file.write(np.ascontiguousarray(batch, dtype=dtype).data)
        release_arrow_memory()

    def read_kept(self) -> Iterator["pa.RecordBatch"]:
        """Read the columns that go with the labels."""
        with self._open() as embeddings:
            name, schema = str(self.path), embeddings.file.schema_arrow
            kept = choose_kept(name, schema, self.columns.keep, [self.column])
            yield from read_kept(name, embeddings.source, schema, kept)

    @contextmanager
    def _open(self) -> Iterator[EmbeddingFile]:
        """Open the file, and check afterwards that it is the one that was opened first."""
        with ExitStack() as stack:
            try:
                source = stack.enter_context(open_place(self.path))
            except OSError as error:
                raise cannot_be_read(self.path, error) from error
            embeddings = open_embeddings(str(self.path), source, self.column)
            if (embeddings.n_rows, embeddings.dim or self.dim) != (self.n_rows, self.dim):
                raise has_changed(self.path)
            yield embeddings
        try:
            version = find_version(self.path)
        except OSError as error:
            raise cannot_be_read(self.path, error) from error
        if version != (self.size, self.modified):
            raise has_changed(self.path)


def open_parquet_shard(path: Place, columns: ParquetColumns) -> ParquetShard:
    """Read the shape of a Parquet shard, and check its columns.

    Raises
    ------
    DataError
        If the file cannot be read, or has not these columns.
    """
    try:
        size, modified = find_version(path)
        with open_place(path) as source:
            found = open_embeddings(str(path), source, columns.column)
    except OSError as error:
        raise cannot_be_read(path, error) from error
    choose_kept(str(path), found.file.schema_arrow, columns.keep, [found.column])
    return ParquetShard(
        path, found.n_rows, found.dim, _STORED[found.dtype], 0, size, modified,
        columns, found.column,
    )  # fmt: skip


def check_space(shards: Sequence[ParquetShard]) -> None:
    """Raise ``DataError`` if the disk has no space for the decoded embeddings."""
    missing = sum(shard.n_bytes for shard in shards if not shard.copy.exists())
    if not missing:
        return
    folder = shards[0].columns.copies
    make_folder(folder)
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise DataError(
            f"{folder}: the decoded embeddings need {missing / 1e9:,.1f} GB, but {free / 1e9:,.1f} "
            "GB are free; choose a folder on another disk."
        )


def remove_copies(folder: Path) -> None:
    """Remove the decoded embeddings of a solve that is finished."""
    for path in folder.glob("*.npy"):
        if _COPY.fullmatch(path.name):
            path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
