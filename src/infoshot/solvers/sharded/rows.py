r"""Many rows of features in files or in memory, processed in chunks.

A row z is compared with class weights as :math:`s \, T (z - \mu)`: scaled to unit length, with T
the identity and no :math:`\mu`, or whitened. Rows are passed as they are, with their scales s. The
rest is linear, so it is applied to class weights and to sums over rows, see ``passes.py``: a pass
over whitened rows takes the time of any other.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.core.parallel import chunk_ranges, map_chunks

Result = TypeVar("Result")


class RowSource(Protocol):
    """Rows that are in memory, like a tensor, or read from a file by slices."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: slice, /) -> Tensor: ...


class RowWhitening(Protocol):
    """What ``features/normalize.py`` calls whitening; rows get the ``length``."""

    @property
    def mean(self) -> Tensor:
        r"""The mean :math:`\mu`, ``(dim,)``."""

    @property
    def length(self) -> float:
        """Length of whitened rows."""

    def shorten(self, rows: Tensor, /) -> Tensor:
        """Apply T, a symmetric matrix, to centred rows."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows, with their labels if any; ``name`` is used in error messages.

    ``scales`` holds the factors that bring rows to their length, ``(row, 1)``, if known.
    """

    name: str
    rows: RowSource
    labels: Tensor | None = None
    scales: Tensor | None = None

    @classmethod
    def prepared(cls, z: Tensor, labels: Tensor | None = None) -> "Piece":
        """Rows in memory that are used as they are."""
        return cls("", z, labels, z.new_ones(len(z), 1))


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces of rows, processed ``chunk_size`` at a time on a device, by some threads on a CPU.

    Unless rows are passed ``as_stored``, they are converted to float32.
    """

    pieces: Sequence[Piece]
    chunk_size: int
    device: str = "cpu"
    n_threads: int = 1
    as_stored: bool = False
    whitening: RowWhitening | None = None

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    def map(self, work: Callable[..., Result]) -> Iterator[tuple[int, Result]]:
        """Apply ``work`` to the rows of every chunk, their scales, and their labels if any.

        Yields
        ------
        The number of rows of the chunk, and the result, in order.

        Raises
        ------
        DataError
            If a row whose scale is not known is not finite or has no direction; the message names
            it.
        """
        chunks = (
            (piece, chunk)
            for piece in self.pieces
            for chunk in chunk_ranges(len(piece.rows), self.chunk_size)
        )

        def on_chunk(which: tuple[Piece, range]) -> tuple[int, Result]:
            with torch.inference_mode():
                return len(which[1]), work(*self._inputs(*which))

        return map_chunks(on_chunk, chunks, self.n_threads, split_single=False)

    def with_scales(self) -> "Rows":
        """Return the same rows with known scales: 4 bytes per row, computed in one pass.

        Raises
        ------
        DataError
            If a row is not finite or has no direction; the message names it.
        """
        found = [torch.empty(0, 1, device=self.device)]
        found += [scales for _, scales in self.map(lambda _, scales, *__: scales)]
        parts = torch.cat(found).split([len(piece.rows) for piece in self.pieces])
        pieces = [
            dataclasses.replace(piece, scales=scales)
            for piece, scales in zip(self.pieces, parts, strict=True)
        ]
        return dataclasses.replace(self, pieces=pieces)

    def _inputs(self, piece: Piece, chunk: range) -> list[Tensor]:
        """Arguments of ``work`` for a chunk."""
        some = slice(chunk.start, chunk.stop)
        z = piece.rows[some].to(self.device)
        z = z if self.as_stored else z.float()
        if piece.scales is None:
            inputs = [z, row_scales(z, piece.name, chunk, self.whitening)]
        else:
            inputs = [z, piece.scales[some].to(self.device)]
        if piece.labels is not None:
            inputs.append(piece.labels[some].to(self.device))
        return inputs


def row_scales(
    z: Tensor, name: str, numbers: Sequence[int], whitening: RowWhitening | None = None
) -> Tensor:
    """Return the factors that bring rows to their length, float32, ``(row, 1)``.

    Parameters
    ----------
    z
        The rows, ``(row, dim)``.
    name, numbers
        The file they come from, and their row numbers there.
    whitening
        How they are whitened; ``None``: they are scaled to unit length.

    Raises
    ------
    DataError
        If a row is not finite or has no direction; the message names it.
    """
    changed = _apply(whitening, z)
    length: Tensor = torch.linalg.vector_norm(changed, dim=1, keepdim=True, dtype=torch.float32)
    # A value that is not finite makes the length not finite, so this check is cheap.
    if not bool(((length > 0) & (length < torch.inf)).all()):
        zero = "is all zero" if whitening is None else "is the mean of the base classes"
        for wrong, what in (
            (~z.isfinite().all(1), "has values that are not finite"),
            ((changed == 0).all(1), f"{zero}, which has no direction"),
            (length.squeeze(1) == 0, "has values that are too small to be squared"),
            (~length.squeeze(1).isfinite(), "has values that are too large to be squared"),
        ):
            if wrong.any():
                number = numbers[int(wrong.nonzero()[0])]
                raise DataError(f"{name}: row {number} {what}.")
    scales = length.reciprocal_()
    return scales if whitening is None else scales.mul_(whitening.length)


def prepare_rows(z: Tensor, scales: Tensor, whitening: RowWhitening | None) -> Tensor:
    """Rows as a solver in memory gets them, float32, ``(row, dim)``."""
    return _apply(whitening, z) * scales


def _apply(whitening: RowWhitening | None, z: Tensor) -> Tensor:
    if whitening is None:
        return z
    mean = whitening.mean.to(z.device, torch.float32)
    return whitening.shorten(z.float() - mean)
