"""The labelled rows of a task over shards, and how they and the queries are prepared."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.core.places import Place
from infoshot.core.tensor_file import digest_tensors
from infoshot.core.types import BaseStatistics, Preparation
from infoshot.features import choose_preparation, prepare, read_features
from infoshot.features.normalize import Whitening, base_statistics, median_length


@dataclass(frozen=True, eq=False)
class Support:
    """Labelled rows as the solver gets them, ``(row, dim)`` in float32, and their classes.

    They are whitened by the statistics of the ``base`` classes, or scaled to unit length if it is
    ``None``; queries must be prepared alike. ``length`` is their median length before.
    """

    z: Tensor
    y: Tensor
    names: tuple[str, ...]
    base: BaseStatistics | None
    length: float

    @cached_property
    def whitening(self) -> Whitening | None:
        """How rows are whitened."""
        return None if self.base is None else Whitening.of(self.base)

    @property
    def preparation(self) -> str:
        """The preparation as text; equal texts mean equal preparations."""
        if self.base is None:
            return "l2"
        tensors = {"mean": self.base.mean, "scatter": self.base.scatter}
        return f"whitened by {digest_tensors(tensors, {})}"

    @property
    def counts(self) -> Tensor:
        """Number of rows of each class, ``(class,)``, float64."""
        return self.y.bincount(minlength=len(self.names)).double()

    def means(self) -> Tensor:
        """Mean of each class, ``(class, dim)``, float64."""
        sums = torch.zeros(len(self.names), self.z.shape[1], dtype=torch.float64)
        return sums.index_add_(0, self.y, self.z.double()) / self.counts.unsqueeze(-1)


def read_support(
    path: Place,
    preparation: Preparation,
    *,
    column: str | None = None,
    label_column: str | None = None,
) -> Support:
    """Read the labelled rows of a feature file; rows with the label -1 are skipped.

    ``preparation`` is what the method asks for; ``column`` and ``label_column`` are those of
    Parquet, see :func:`infoshot.read_features`.

    Raises
    ------
    DataError
        If there are fewer than two classes, or a class has no row.
    """
    table = read_features(path, column=column, label_column=label_column)
    labelled = table.labels >= 0
    present, y = table.labels[labelled].unique(return_inverse=True)
    highest = int(present[-1]) if len(present) else -1
    n_classes = max(len(table.class_names), highest + 1)
    if n_classes < 2:
        raise DataError(f"{path}: must have labelled rows of at least two classes.")
    n_missing = n_classes - len(present)
    if n_missing:
        # Never a list of all classes: the highest label may be any number.
        numbered = enumerate([*present.tolist(), n_classes])
        missing = next(number for number, label in numbered if label != number)
        more = f" (and {n_missing - 1} more classes)" if n_missing > 1 else ""
        raise DataError(f"{path}: class '{table.class_name(missing)}'{more} has no labelled row.")
    names = tuple(table.class_name(label) for label in range(n_classes))
    preparation = choose_preparation(table, preparation)
    try:
        z = prepare(table, preparation)[labelled].float()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    base = base_statistics(table) if preparation == "whitened" else None
    return Support(z, y, names, base, median_length(table.features[labelled]))
