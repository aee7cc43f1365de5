r"""What rows need before they are compared with class weights, in a form that costs a pass little.

A row z is prepared as :math:`z' = s \, T (z - \mu)`: scaled to unit length, with T the identity and
no :math:`\mu`, or whitened. Whitened rows may also be averaged with their nearest centres c, as
``solvers/neighbours.py`` averages samples with other samples:

.. math:: z' = r \left((1 - a) \, s \, T (z - \mu) + a \sum_j g_j c_j\right)
             = s' \, T (u - \mu), \qquad u = z + \sum_j b_j \, T^{-1} c_j,

with r such that the length stays, :math:`s' = r (1 - a) s` and
:math:`b_j = a g_j / ((1 - a) s)`. So a row is described by a scale and the weights of a few
centres, which are measured once. Passes get u and s'. As T and :math:`\mu` are the same for all
rows, they are applied to class weights and to sums over rows instead, see ``passes.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from infoshot.core.errors import DataError
from infoshot.solvers.neighbours import find_nearest


class RowWhitening(Protocol):
    """What ``features/normalize.py`` calls whitening."""

    @property
    def mean(self) -> Tensor:
        r"""The mean :math:`\mu`, ``(dim,)``."""

    @property
    def length(self) -> float:
        """Length of whitened rows."""

    def shorten(self, rows: Tensor, /) -> Tensor:
        """Apply T, a symmetric matrix, to centred rows."""

    def lengthen(self, rows: Tensor, /) -> Tensor:
        """Apply the inverse of T."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of rows: their scales, ``(row, 1)``, and the centres that are added.

    ``numbers`` and ``weights`` are those of the centres, ``(row, centre)``, with as many columns as
    centres are added to a row.
    """

    scales: Tensor
    numbers: Tensor
    weights: Tensor

    @classmethod
    def without_centres(cls, scales: Tensor) -> "Measured":
        """Rows that no centres are added to."""
        none = scales[:, :0]
        return cls(scales, none.short(), none)

    def write_part(self, first: int, part: "Measured") -> None:
        """Write what was measured of some of the rows to its place."""
        some = slice(first, first + len(part.scales))
        self.scales[some], self.numbers[some] = part.scales, part.numbers
        self.weights[some] = part.weights

    def part(self, some: slice, device: str) -> "Measured":
        """Those of some of the rows."""
        columns = (self.scales, self.numbers, self.weights)
        return Measured(*(column[some].to(device) for column in columns))


@dataclass(frozen=True, eq=False)
class Averaging:
    """Prepared rows are averaged with the nearest ``centres``, prepared too, ``(centre, dim)``.

    ``share`` is the weight of the ``n_nearest`` centres.
    """

    centres: Tensor
    share: float
    n_nearest: int


@dataclass(frozen=True, eq=False)
class RowPreparation:
    """How rows are prepared; without whitening they are scaled to unit length."""

    whitening: RowWhitening | None = None
    averaging: Averaging | None = None

    def allocate(self, n_rows: int, device: str) -> Measured:
        """Memory for what is measured of this many rows."""
        averaging = self.averaging
        n = 0 if averaging is None else min(averaging.n_nearest, len(averaging.centres))
        scales, weights = (torch.empty(n_rows, columns, device=device) for columns in (1, n))
        return Measured(scales, torch.empty(n_rows, n, dtype=torch.int16, device=device), weights)

    def measure(self, z: Tensor, name: str, numbers: Sequence[int]) -> Measured:
        """Measure rows, ``(row, dim)``.

        ``name`` is the file they come from, and ``numbers`` are their row numbers there.

        Raises
        ------
        DataError
            If a row is not finite or has no direction; the message names it.
        """
        changed = self._transform(z)
        length: Tensor = torch.linalg.vector_norm(changed, dim=1, keepdim=True, dtype=torch.float32)
        # A value that is not finite makes the length not finite, so this check is cheap.
        if not bool(((length > 0) & (length < torch.inf)).all()):
            raise self._name_row(z, changed, length.squeeze(1), name, numbers)
        scales = length.reciprocal_()
        if self.whitening is not None:
            scales = scales.mul_(self.whitening.length)
        if self.averaging is None:
            return Measured.without_centres(scales)
        return self._measure_centres(changed * scales, scales, self.averaging)

    def add_centres(self, z: Tensor, measured: Measured) -> Tensor:
        """Return u for rows z, in their dtype."""
        if not measured.numbers.shape[1]:
            return z
        centres = self._lengthened.to(z.device)
        added = _weighted_sums(measured.numbers.int(), centres, measured.weights)
        return added.add_(z).to(z.dtype)

    def apply(self, u: Tensor, scales: Tensor) -> Tensor:
        """Prepared rows, float32, from what passes get."""
        return self._transform(u) * scales

    def _transform(self, z: Tensor) -> Tensor:
        if self.whitening is None:
            return z
        mean = self.whitening.mean.to(z.device, torch.float32)
        return self.whitening.shorten(z.float() - mean)

    def _measure_centres(self, z: Tensor, scales: Tensor, averaging: Averaging) -> Measured:
        """Measure the nearest centres of prepared rows, and what averaging does to the scales."""
        centres, rest = averaging.centres.to(z.device), 1 - averaging.share
        near = find_nearest(z.unsqueeze(0), centres.unsqueeze(0), averaging.n_nearest)
        numbers, shares = near.numbers[0], near.shares()[0]
        mixed = _weighted_sums(numbers, centres, shares).mul_(averaging.share).add_(z, alpha=rest)
        before, after = (torch.linalg.vector_norm(x, dim=1, keepdim=True) for x in (z, mixed))
        weights = shares.mul_(averaging.share / rest).div_(scales)
        return Measured(scales * before.div_(after).mul_(rest), numbers.short(), weights)

    @cached_property
    def _lengthened(self) -> Tensor:
        """The centres, with the inverse of T applied to them."""
        assert self.averaging is not None
        centres = self.averaging.centres
        if self.whitening is None:
            return centres
        return self.whitening.lengthen(centres.double()).float()

    def _name_row(
        self, z: Tensor, changed: Tensor, length: Tensor, name: str, numbers: Sequence[int]
    ) -> DataError:
        """Return the error that names the first row without a direction."""
        zero = "is all zero" if self.whitening is None else "is the mean of the base classes"
        for wrong, what in (
            (~z.isfinite().all(1), "has values that are not finite"),
            ((changed == 0).all(1), f"{zero}, which has no direction"),
            (length == 0, "has values that are too small to be squared"),
        ):
            if wrong.any():
                return DataError(f"{name}: row {numbers[int(wrong.nonzero()[0])]} {what}.")
        number = numbers[int((~length.isfinite()).nonzero()[0])]
        return DataError(f"{name}: row {number} has values that are too large to be squared.")


AT_UNIT_LENGTH = RowPreparation()


def _weighted_sums(numbers: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Sum the numbered rows with these weights, both ``(n, some)``."""
    return embedding_bag(numbers, rows, per_sample_weights=weights, mode="sum")
