"""Many rows of features in files or in memory, processed in chunks."""

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


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows, with their labels if any; ``name`` is used in error messages.

    ``inverse`` holds their inverse lengths, ``(row, 1)``, if known.
    """

    name: str
    rows: RowSource
    labels: Tensor | None = None
    inverse: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces of rows, processed ``chunk_size`` at a time on a device, by some threads on a CPU.

    ``as_stored``: rows are not scaled but passed with their inverse lengths.
    """

    pieces: Sequence[Piece]
    chunk_size: int
    device: str = "cpu"
    n_threads: int = 1
    as_stored: bool = False

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    def map(self, work: Callable[..., Result]) -> Iterator[tuple[int, Result]]:
        """Apply ``work`` to the rows of every chunk, in order; it may write into them.

        Rows are float32 and of unit length, unless they are ``as_stored``; labels are passed with
        them if there are any.

        Yields
        ------
        The number of rows of the chunk, and the result.

        Raises
        ------
        DataError
            If a row is not finite or has length zero; the message names it.
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

    def _inputs(self, piece: Piece, chunk: range) -> list[Tensor]:
        """Arguments of ``work`` for a chunk."""
        some = slice(chunk.start, chunk.stop)
        if self.as_stored:
            z, inverse = piece.rows[some].to(self.device), piece.inverse
            return [z, inverse_lengths(z, piece.name, chunk) if inverse is None else inverse[some]]
        # Rows of a file are in a tensor of their own already.
        copy = isinstance(piece.rows, Tensor)
        z = piece.rows[some].to(self.device, torch.float32, copy=copy)
        inputs = [z.mul_(inverse_lengths(z, piece.name, chunk))]
        if piece.labels is not None:
            inputs.append(piece.labels[some].to(self.device))
        return inputs


def inverse_lengths(z: Tensor, name: str, numbers: Sequence[int]) -> Tensor:
    """Inverse lengths of rows, float32, ``(row, 1)``.

    Parameters
    ----------
    z
        The rows, ``(row, dim)``.
    name, numbers
        The file they come from, and their row numbers there.

    Raises
    ------
    DataError
        If a row is not finite or has length zero; the message names it.
    """
    length: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True, dtype=torch.float32)
    # A value that is not finite makes the length not finite, so this check is cheap.
    if not bool(((length > 0) & (length < torch.inf)).all()):
        for wrong, what in (
            (~z.isfinite().all(1), "has values that are not finite"),
            ((z == 0).all(1), "is all zero, which has no direction"),
            (length.squeeze(1) == 0, "has values that are too small to be squared"),
            (length.squeeze(1).isinf(), "has values that are too large to be squared"),
        ):
            if wrong.any():
                number = numbers[int(wrong.nonzero()[0])]
                raise DataError(f"{name}: row {number} {what}.")
    return length.reciprocal_()
