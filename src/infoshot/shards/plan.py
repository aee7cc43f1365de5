"""What a solve over shards is about: support, shards and settings that fit each other."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.types import TaskBatch
from infoshot.distributed import Ranks
from infoshot.features import digest
from infoshot.shards.files import Shard, find_shards
from infoshot.shards.support import Support, read_support
from infoshot.solvers import Method, TimAdm, TimAuto, _kernels, balance
from infoshot.solvers.sharded import half
from infoshot.solvers.sharded.rows import Piece, Rows, inverse_lengths

METHODS = ("tim-adm", "tim-auto")
_FEWEST_ROWS, _MOST_ROWS, _NUMBERS = 512, 16384, 2**20  # of a chunk on a CPU
_ROWS_ON_GPU, _NUMBERS_ON_GPU = 2**18, 2**28
_SHARE_OF_GPU = 0.6  # of its free memory that may be filled with features


def dealt_out(shards: Sequence[Shard], ranks: Ranks) -> list[Shard]:
    """Shards of this process: the largest first, each to whoever has the fewest rows."""
    load, owner = [0] * ranks.size, dict[str, int]()
    for shard in sorted(shards, key=lambda shard: (-shard.n_rows, shard.name)):
        least = load.index(min(load))
        load[least] += shard.n_rows
        owner[shard.name] = least
    return [shard for shard in shards if owner[shard.name] == ranks.rank]


def _over_shards(solver: TimAdm | TimAuto) -> TimAdm | TimAuto:
    """The solver as it is over shards; refuse settings that would be passed over in silence."""
    if isinstance(solver, TimAdm):
        if not solver.linearized or solver.form == "gram":
            raise InvalidArgumentError(
                "shards are solved with linearized=true and in the feature form only."
            )
        return solver
    usual = TimAuto()
    if solver.smoothing not in (0, usual.smoothing) or solver.n_neighbours != usual.n_neighbours:
        raise InvalidArgumentError(
            "over shards queries are not averaged with their neighbours, so smoothing and "
            "n_neighbours cannot be set."
        )
    return dataclasses.replace(solver, smoothing=0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Everything that was looked at before the work begins; ``facts`` are what it depends on."""

    support: Support
    shards: list[Shard]
    solver: TimAdm | TimAuto
    ranks: Ranks
    facts: dict[str, Any]

    @classmethod
    def prepared(cls, support: Path, queries: Path, method: Method, ranks: Ranks) -> "Plan":
        """Read the support and the headers of all shards, and see that they fit.

        Raises
        ------
        DataError, InvalidArgumentError
            If something does not fit.
        """
        solver = method.solver
        if not isinstance(solver, (TimAdm, TimAuto)):
            raise InvalidArgumentError(
                f"method must be one of {', '.join(METHODS)} for shards; got '{method.name}'."
            )
        solver = _over_shards(solver)
        rows, shards = read_support(support), find_shards(queries)
        solver.validate(len(rows.names))
        if shards[0].dim != rows.z.shape[1]:
            raise DataError(
                f"{shards[0].path}: has {shards[0].dim} features per row, but {support.name} has "
                f"{rows.z.shape[1]}."
            )
        facts = {
            "support_sha256": digest(support),
            "shards": [shard.described() for shard in shards],
            "method": method.name,
            "settings": json.loads(json.dumps(solver.settings())),  # as it is read again
        }
        ranks.check_same("support, shards and settings", json.dumps(facts, sort_keys=True))
        plan = cls(support=rows, shards=shards, solver=solver, ranks=ranks, facts=facts)
        if isinstance(solver, TimAuto) and plan.n_queries < 2 * len(rows.names):
            raise DataError(
                f"{queries}: tim-auto needs at least two queries per class; got {plan.n_queries} "
                f"for {len(rows.names)} classes."
            )
        return plan

    @property
    def n_queries(self) -> int:
        """Rows of all shards."""
        return sum(shard.n_rows for shard in self.shards)

    @property
    def key(self) -> str:
        """Digest of everything that the solve depends on."""
        return hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).hexdigest()

    def own_shards(self) -> list[Shard]:
        """Shards of this process."""
        return dealt_out(self.shards, self.ranks)

    def adm(self, beta: float) -> TimAdm:
        """What takes the steps."""
        solver = self.solver
        return solver.adm(beta, solver.n_steps) if isinstance(solver, TimAuto) else solver

    def reporting_temperature(self) -> float:
        """Temperature of the probabilities that are reported."""
        z, y = self.support.z.unsqueeze(0), self.support.y.unsqueeze(0)
        shape = TaskBatch(z, y, z.new_empty(1, self.n_queries, 0), len(self.support.names))
        return float(self.solver.reporting_temperature(shape))

    def sample(self, n: int) -> Tensor:
        """Queries of unit length, evenly spaced over all shards."""
        wanted = balance.evenly_spaced(self.n_queries, n)
        some, first = [], 0
        for shard in self.shards:
            own = wanted[(wanted >= first) & (wanted < first + shard.n_rows)] - first
            z = shard.rows()[own].float()
            some.append(z * inverse_lengths(z, str(shard.path), own.tolist()))
            first += shard.n_rows
        return torch.cat(some)

    def own_support(self) -> Rows:
        """Labelled rows of this process."""
        shares = slice(self.ranks.rank, None, self.ranks.size)
        z, y = (rows[shares].to(self.ranks.device) for rows in (self.support.z, self.support.y))
        return self.rows([Piece("", z, y)])

    def own_queries(self) -> Rows:
        """Own shards; on a GPU in its memory if they fit, in float16 if they are."""
        own = self.own_shards()
        rows = self.rows([Piece(str(shard.path), shard.rows()) for shard in own])
        device = self.ranks.device
        if device == "cpu":
            return rows
        halves = all(shard.dtype.itemsize == 2 for shard in own)
        fast = halves and len(self.support.names) <= half.MOST_CLASSES
        fast = fast and _kernels.available(torch.device(device))
        free, _ = torch.cuda.mem_get_info(device)
        if sum(piece.rows.nbytes for piece in rows.pieces) > _SHARE_OF_GPU * free:
            return dataclasses.replace(rows, as_stored=fast)
        pieces = []
        for piece in rows.pieces:
            z = piece.rows.to(device)
            inverse = inverse_lengths(z, piece.name, range(len(z))) if fast else None
            pieces.append(dataclasses.replace(piece, rows=z, inverse=inverse))
        return dataclasses.replace(rows, pieces=pieces, as_stored=fast)

    def rows(self, pieces: list[Piece]) -> Rows:
        """Pieces that are computed in chunks which suit the device."""
        n_classes, dim = len(self.support.names), self.support.z.shape[1]
        if self.ranks.device == "cpu":
            n_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _NUMBERS // (n_classes + dim)))
            return Rows(pieces, n_rows, n_threads=torch.get_num_threads())
        return Rows(pieces, min(_ROWS_ON_GPU, _NUMBERS_ON_GPU // n_classes), self.ranks.device)
