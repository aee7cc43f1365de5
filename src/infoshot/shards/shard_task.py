"""One task over shards: labelled rows, shards and settings that fit together."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoshot.core.checks import order_shares
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.places import Place
from infoshot.distributed import Ranks
from infoshot.features import digest, is_parquet
from infoshot.shards.parquet_shard import ParquetColumns, ParquetShard
from infoshot.shards.shard_finder import find_shards
from infoshot.shards.shard_reader import Shard
from infoshot.shards.shard_support import Support, read_support
from infoshot.solvers import Method, TimAdm, TimAuto
from infoshot.solvers.sharded.row_preparation import AT_UNIT_LENGTH, Averaging, RowPreparation
from infoshot.solvers.sharded.rows import Piece, Rows

_METHODS = ("tim-adm", "tim-auto")
_PREPARATIONS = ("l2", "whitened")
_FEWEST_ROWS, _MOST_ROWS, _NUMBERS = 512, 16384, 2**20  # of a chunk on a CPU
_ROWS_ON_GPU, _NUMBERS_ON_GPU = 2**18, 2**28
ROWS_PER_CENTRE = 16  # of those that k-means uses
_FEWEST_PER_CLASS, _MOST_PER_CLASS, _MOST_CENTRES = 4, 64, 4096  # centres


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardTask:
    """Everything that is known before the first iteration.

    ``ranks`` is this process among those that share the work; ``provenance`` is everything that the
    result depends on.
    """

    support: Support
    shards: list[Shard]
    solver: TimAdm | TimAuto
    ranks: Ranks
    provenance: dict[str, Any]

    @property
    def n_queries(self) -> int:
        """Number of rows of all shards."""
        return sum(shard.n_rows for shard in self.shards)

    @property
    def key(self) -> str:
        """Digest of the provenance."""
        return hashlib.sha256(json.dumps(self.provenance, sort_keys=True).encode()).hexdigest()

    def own_shards(self) -> list[Shard]:
        """Shards of this process."""
        return assign_shards(self.shards, self.ranks)

    def adm(self, beta: float) -> TimAdm:
        """Solver that takes the steps, for a weight of the marginal entropy."""
        solver = self.solver
        return solver.adm(beta, solver.n_steps) if isinstance(solver, TimAuto) else solver

    @property
    def n_centres(self) -> int:
        """Number of centres that queries are averaged with; 0: they are not averaged."""
        solver = self.solver
        if self.support.base is None or not isinstance(solver, TimAuto) or not solver.smoothing:
            return 0
        n_classes = len(self.support.names)
        n = min(self.n_queries // ROWS_PER_CENTRE, _MOST_PER_CLASS * n_classes, _MOST_CENTRES)
        return n if n >= _FEWEST_PER_CLASS * n_classes else 0

    def preparation(self, centres: Tensor | None = None) -> RowPreparation:
        """How queries are prepared; with ``centres`` they are averaged with them."""
        averaging, solver = None, self.solver
        if centres is not None and len(centres) and isinstance(solver, TimAuto):
            centres = centres.to(self.ranks.device)
            averaging = Averaging(centres, solver.smoothing, solver.n_neighbours)
        return RowPreparation(self.support.whitening, averaging)

    def own_support(self) -> Rows:
        """Labelled rows of this process."""
        own = slice(self.ranks.rank, None, self.ranks.size)
        z, y = (rows[own].to(self.ranks.device) for rows in (self.support.z, self.support.y))
        return self.in_chunks([Piece.prepared(z, y)])

    def in_chunks(self, pieces: list[Piece], preparation: RowPreparation = AT_UNIT_LENGTH) -> Rows:
        """Pieces to be read in chunks of a size that suits the device."""
        n_classes, dim = len(self.support.names), self.support.z.shape[1]
        n_threads = 1
        if self.ranks.device == "cpu":
            n_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _NUMBERS // (n_classes + dim)))
            n_threads = torch.get_num_threads()
        else:
            n_rows = min(_ROWS_ON_GPU, _NUMBERS_ON_GPU // n_classes)
        return Rows(pieces, n_rows, self.ranks.device, n_threads, preparation=preparation)


def read_task(
    support: Place,
    queries: Place,
    method: Method,
    ranks: Ranks,
    *,
    prior: Mapping[str, float] | None = None,
    columns: ParquetColumns | None = None,
    label_column: str | None = None,
) -> ShardTask:
    """Read the support and the headers of all shards, and check that they fit the method.

    Parameters
    ----------
    support, queries
        Feature file with labels, and folder of shards.
    method
        Method with its settings.
    ranks
        This process among the others.
    prior
        Share of each class by name; sets ``class_prior``.
    columns
        What Parquet shards hold; its ``column`` is that of a Parquet support too.
    label_column
        Labels in a Parquet support.

    Raises
    ------
    DataError, InvalidArgumentError
        If something does not fit.
    """
    if method.preparation not in _PREPARATIONS:
        raise InvalidArgumentError(
            f"method must need one of the preparations {', '.join(_PREPARATIONS)} for shards; got "
            f"'{method.preparation}'."
        )
    column = None if columns is None else columns.column
    own = column if column is not None and is_parquet(support) else None
    rows = read_support(support, method.preparation, column=own, label_column=label_column)
    shards = find_shards(queries, columns)
    if column != own and not any(isinstance(shard, ParquetShard) for shard in shards):
        raise InvalidArgumentError(
            f"column must be left out where nothing is Parquet; got {column!r:.80}."
        )
    if prior is not None:
        method = _with_prior(method, prior, rows.names)
    solver = _adapt_solver(method, whitened=rows.base is not None)
    solver.validate(len(rows.names))
    if shards[0].dim != rows.z.shape[1]:
        raise DataError(
            f"{shards[0].path}: has {shards[0].dim} features per row, but {support.name} has "
            f"{rows.z.shape[1]}."
        )
    provenance = {
        "support_sha256": digest(support),
        "shards": [shard.fingerprint() for shard in shards],
        "preparation": rows.preparation,
        "method": method.name,
        "settings": json.loads(json.dumps(solver.settings())),  # as a file returns them
    }
    task = ShardTask(support=rows, shards=shards, solver=solver, ranks=ranks, provenance=provenance)
    provenance["centres"] = task.n_centres
    ranks.check_same("support, shards and settings", json.dumps(provenance, sort_keys=True))
    if isinstance(solver, TimAuto) and task.n_queries < 2 * len(rows.names):
        raise DataError(
            f"{queries}: tim-auto needs at least two queries per class; got {task.n_queries} for "
            f"{len(rows.names)} classes."
        )
    return task


def assign_shards(shards: Sequence[Shard], ranks: Ranks) -> list[Shard]:
    """Shards of this process: the largest first, each to the process with the fewest rows."""
    load, owner = [0] * ranks.size, dict[str, int]()
    for shard in sorted(shards, key=lambda shard: (-shard.n_rows, shard.name)):
        least = load.index(min(load))
        load[least] += shard.n_rows
        owner[shard.name] = least
    return [shard for shard in shards if owner[shard.name] == ranks.rank]


def _with_prior(method: Method, prior: Mapping[str, float], names: Sequence[str]) -> Method:
    if "class_prior" not in method.solver.settings():
        raise InvalidArgumentError(
            f"prior must be left out for the method '{method.name}', which does not use one."
        )
    return method.with_settings({"class_prior": order_shares(prior, names)})


def _adapt_solver(method: Method, *, whitened: bool) -> TimAdm | TimAuto:
    """Return the solver as shards use it; raise if one of its settings would have no effect."""
    solver = method.solver
    if isinstance(solver, TimAdm):
        if not solver.linearized or solver.form == "gram":
            raise InvalidArgumentError(
                "shards need the setting linearized=true and another form than gram."
            )
        return solver
    if not isinstance(solver, TimAuto):
        raise InvalidArgumentError(
            f"method must be one of {', '.join(_METHODS)} for shards; got '{method.name}'."
        )
    if whitened:
        return solver
    default = TimAuto()
    if solver.smoothing not in (0, default.smoothing) or (
        solver.n_neighbours != default.n_neighbours
    ):
        raise InvalidArgumentError(
            "smoothing and n_neighbours cannot be set for shards of a network whose base classes "
            "are not known: their rows are not averaged."
        )
    return dataclasses.replace(solver, smoothing=0.0)
