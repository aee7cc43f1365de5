"""The labelled rows of a solve over shards."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from infoshot.core.errors import DataError
from infoshot.features import prepare, read_features


@dataclass(frozen=True, eq=False)
class Support:
    """Labelled rows of unit length, ``(row, dim)`` in float32, and the names of their classes."""

    z: Tensor
    y: Tensor
    names: tuple[str, ...]

    @property
    def counts(self) -> Tensor:
        """How many rows each class has, ``(class,)``, float64."""
        return self.y.bincount(minlength=len(self.names)).double()

    def means(self) -> Tensor:
        """Mean of each class, ``(class, dim)``, float64."""
        sums = torch.zeros(len(self.names), self.z.shape[1], dtype=torch.float64)
        return sums.index_add_(0, self.y, self.z.double()) / self.counts.unsqueeze(-1)


def read_support(path: Path) -> Support:
    """Labelled rows of a feature file; rows labelled -1 are passed over.

    Raises
    ------
    DataError
        If there are fewer than two classes, or one of them has no row.
    """
    table = read_features(path)
    labelled = table.labels >= 0
    y = table.labels[labelled]
    n_classes = max(len(table.class_names), int(y.max()) + 1 if len(y) else 0)
    if n_classes < 2:
        raise DataError(f"{path}: labelled rows of at least two classes are needed.")
    names = tuple(table.class_name(label) for label in range(n_classes))
    missing = (y.bincount(minlength=n_classes) == 0).nonzero().flatten().tolist()
    if missing:
        more = f" (and {len(missing) - 1} more classes)" if len(missing) > 1 else ""
        raise DataError(f"{path}: class '{names[missing[0]]}'{more} has no labelled row.")
    try:
        z = prepare(table, "l2")[labelled].float()
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return Support(z, y, names)
