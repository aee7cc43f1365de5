"""Many rows of features in files or in memory, processed in chunks."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from infoshot.core.parallel import chunk_ranges, map_chunks
from infoshot.solvers.sharded.row_preparation import AT_UNIT_LENGTH, Measured, RowPreparation

Result = TypeVar("Result")


class RowSource(Protocol):
    """Rows that are in memory, like a tensor, or read from a file by slices."""

    def __len__(self) -> int: ...

    def __getitem__(self, some: slice, /) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one file, with their labels if any, and what was measured of them if it is known.

    Error messages have the ``name`` and the ``numbers`` of the rows; ``None``: 0, 1 and so on.
    """

    name: str
    rows: RowSource
    labels: Tensor | None = None
    numbers: Sequence[int] | None = None
    measured: Measured | None = None

    @classmethod
    def prepared(cls, z: Tensor, labels: Tensor | None = None) -> "Piece":
        """Rows in memory that are used as they are."""
        return cls("", z, labels, measured=Measured.without_centres(z.new_ones(len(z), 1)))


@dataclass(frozen=True, eq=False)
class Rows:
    """Pieces of rows, processed ``chunk_size`` at a time on a device, by some threads on a CPU.

    Rows are converted to float32, unless they are passed ``as_stored``. ``preparation`` is that of
    rows that have not been measured.
    """

    pieces: Sequence[Piece]
    chunk_size: int
    device: str = "cpu"
    n_threads: int = 1
    as_stored: bool = False
    preparation: RowPreparation = AT_UNIT_LENGTH

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    def map(self, work: Callable[..., Result]) -> Iterator[tuple[int, Result]]:
        """Apply ``work`` to the rows of every chunk, their scales, and their labels if any.

        Rows have their centres added, see ``row_preparation.py``.

        Yields
        ------
        The number of rows of the chunk, and the result, in order.

        Raises
        ------
        DataError
            If a row that has not been measured is not finite or has no direction; the message names
            it.
        """

        def on_chunk(piece: Piece, chunk: range) -> tuple[int, Result]:
            z, measured = self._read(piece, chunk)
            inputs = [self.preparation.add_centres(z, measured), measured.scales]
            if piece.labels is not None:
                inputs.append(piece.labels[chunk.start : chunk.stop].to(self.device))
            return len(chunk), work(*inputs)

        return self._map(on_chunk)

    def measure(self) -> "Rows":
        """Return the same rows measured, so that later passes need not do it.

        Raises
        ------
        DataError
            If a row is not finite or has no direction; the message names it.
        """
        # Allocated beforehand: small tensors between those of the chunks would fragment the memory.
        found = [self.preparation.allocate(len(piece.rows), self.device) for piece in self.pieces]
        place = {id(piece): measured for piece, measured in zip(self.pieces, found, strict=True)}
        for piece, chunk, measured in self._map(lambda *of: (*of, self._read(*of)[1])):
            place[id(piece)].write_part(chunk.start, measured)
        pieces = [
            dataclasses.replace(piece, measured=measured)
            for piece, measured in zip(self.pieces, found, strict=True)
        ]
        return dataclasses.replace(self, pieces=pieces)

    def _map(self, on_chunk: Callable[[Piece, range], Result]) -> Iterator[Result]:
        """Call a function for the chunks of all pieces; yield its results in order."""
        chunks = (
            (piece, chunk)
            for piece in self.pieces
            for chunk in chunk_ranges(len(piece.rows), self.chunk_size)
        )

        def call(which: tuple[Piece, range]) -> Result:
            with torch.inference_mode():
                return on_chunk(*which)

        return map_chunks(call, chunks, self.n_threads, split_single=False)

    def _read(self, piece: Piece, chunk: range) -> tuple[Tensor, Measured]:
        """Rows of a chunk, and what was measured of them."""
        some = slice(chunk.start, chunk.stop)
        z = piece.rows[some].to(self.device)
        z = z if self.as_stored else z.float()
        if piece.measured is not None:
            return z, piece.measured.part(some, self.device)
        numbers = chunk if piece.numbers is None else piece.numbers[some]
        return z, self.preparation.measure(z, piece.name, numbers)
