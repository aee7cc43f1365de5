"""One task over shards: labelled rows, shards and settings that fit together."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from infoshot.core.checks import order_shares
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.parallel import chunk_ranges
from infoshot.core.places import Place
from infoshot.core.tensor_file import digest_tensors
from infoshot.core.types import BaseStatistics, Preparation
from infoshot.distributed import Ranks
from infoshot.features import choose_preparation, digest, is_parquet, prepare, read_features
from infoshot.features.normalize import Whitening, base_statistics
from infoshot.shards.parquet_shard import ParquetColumns, ParquetShard
from infoshot.shards.shard_finder import find_shards
from infoshot.shards.shard_reader import Shard
from infoshot.solvers import Method, TimAdm, TimAuto, _kernels, balance
from infoshot.solvers.sharded import half
from infoshot.solvers.sharded.rows import Piece, Rows, prepare_rows, row_scales

_METHODS = ("tim-adm", "tim-auto")
_PREPARATIONS = ("l2", "whitened")
_FEWEST_ROWS, _MOST_ROWS, _NUMBERS = 512, 16384, 2**20  # of a chunk on a CPU
_ROWS_ON_GPU, _NUMBERS_ON_GPU = 2**18, 2**28
_SHARE_OF_GPU = 0.6  # of its free memory that features may fill
_LARGEST_RATIO = 4  # of the lengths of support and queries that one encoder computed


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
    length = float(table.features[labelled].float().norm(dim=1).median())
    base = base_statistics(table) if preparation == "whitened" else None
    return Support(z, y, names, base, length)


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

    def sample(self, n: int) -> Tensor:
        """Queries as the solver gets them, evenly spaced over all shards, ``(query, dim)``."""
        wanted = balance.evenly_spaced(self.n_queries, n)
        rows, scales, first = [], [], 0
        whitening = self.support.whitening
        for shard in self.shards:
            own = wanted[(wanted >= first) & (wanted < first + shard.n_rows)] - first
            rows.append(shard.rows().pick(own.tolist()).float())
            scales.append(row_scales(rows[-1], str(shard.path), own.tolist(), whitening))
            first += shard.n_rows
        z = torch.cat(rows)
        if whitening is not None:
            self._check_lengths(z)
        return prepare_rows(z, torch.cat(scales), whitening)

    def own_support(self) -> Rows:
        """Labelled rows of this process."""
        own = slice(self.ranks.rank, None, self.ranks.size)
        z, y = (rows[own].to(self.ranks.device) for rows in (self.support.z, self.support.y))
        return self.in_chunks([Piece.prepared(z, y)])

    def own_queries(self) -> Rows:
        """Queries of this process; in the memory of a GPU if they fit, float16 if they are."""
        own = self.own_shards()
        rows, device = self.queries_of(own), self.ranks.device
        if device == "cpu":
            return rows.with_scales()
        halves = all(shard.dtype == torch.float16 for shard in own)
        fast = halves and len(self.support.names) <= half.MOST_CLASSES
        fast = fast and _kernels.available(torch.device(device))
        rows = dataclasses.replace(rows, as_stored=fast)
        free, _ = torch.cuda.mem_get_info(device)
        if sum(shard.n_bytes for shard in own) > _SHARE_OF_GPU * free:
            return rows.with_scales()
        pieces = []
        for shard, piece in zip(own, rows.pieces, strict=True):
            z = torch.empty(shard.n_rows, shard.dim, dtype=shard.dtype, device=device)
            for chunk in chunk_ranges(len(z), rows.chunk_size):
                some = slice(chunk.start, chunk.stop)
                z[some] = piece.rows[some].to(device)
            pieces.append(dataclasses.replace(piece, rows=z))
        return dataclasses.replace(rows, pieces=pieces).with_scales()

    def queries_of(self, shards: Sequence[Shard]) -> Rows:
        """Queries of some shards, which are read in chunks."""
        rows = self.in_chunks([Piece(str(shard.path), shard.rows()) for shard in shards])
        return dataclasses.replace(rows, whitening=self.support.whitening)

    def in_chunks(self, pieces: list[Piece]) -> Rows:
        """Pieces to be read in chunks of a size that suits the device."""
        n_classes, dim = len(self.support.names), self.support.z.shape[1]
        if self.ranks.device == "cpu":
            n_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _NUMBERS // (n_classes + dim)))
            return Rows(pieces, n_rows, n_threads=torch.get_num_threads())
        return Rows(pieces, min(_ROWS_ON_GPU, _NUMBERS_ON_GPU // n_classes), self.ranks.device)

    def _check_lengths(self, z: Tensor) -> None:
        """Raise ``DataError`` if these queries are not on the scale of the support.

        Other preparations do not depend on the scale, whitening does.
        """
        length = float(z.norm(dim=1).median())
        if not 1 / _LARGEST_RATIO <= length / self.support.length <= _LARGEST_RATIO:
            raise DataError(
                f"{self.shards[0].path} and the other shards: rows have a median length of "
                f"{length:.3g}, those of the support {self.support.length:.3g}; features that are "
                "whitened must be as one encoder gives them, in both."
            )


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
    solver = _adapt_solver(method)
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
    ranks.check_same("support, shards and settings", json.dumps(provenance, sort_keys=True))
    task = ShardTask(support=rows, shards=shards, solver=solver, ranks=ranks, provenance=provenance)
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


def _adapt_solver(method: Method) -> TimAdm | TimAuto:
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
    default = TimAuto()
    if solver.smoothing not in (0, default.smoothing) or (
        solver.n_neighbours != default.n_neighbours
    ):
        raise InvalidArgumentError(
            "smoothing and n_neighbours cannot be set for shards, where queries are not averaged "
            "with their neighbours."
        )
    return dataclasses.replace(solver, smoothing=0.0)
