"""A solve over shards from files to files: look, take up what was begun, iterate, label."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.atomic import make_folder, sole_writer, write_atomically
from infoshot.distributed import ALONE, Ranks
from infoshot.environment import environment
from infoshot.errors import DataError, InvalidArgumentError
from infoshot.features import digest
from infoshot.shards import half
from infoshot.shards.adm import ShardedAdm
from infoshot.shards.files import Shard, find_shards
from infoshot.shards.guard import decide_balance, sample_size
from infoshot.shards.labels import known_counts, label_shard, labels_path
from infoshot.shards.passes import Classifier
from infoshot.shards.progress import STATE_NAME, Progress, read_progress
from infoshot.shards.rows import Piece, Rows, inverse_lengths
from infoshot.shards.support import Support, read_support
from infoshot.solvers import Method, TimAdm, TimAuto, balance, kernels, method_by_name
from infoshot.solvers.baselines.prototype import shrunken
from infoshot.types import TaskBatch

METHODS = ("tim-adm", "tim-auto")
SUMMARY_NAME = "run.json"
_FORMAT = "infoshot.solve-shards/1"
_FEWEST_ROWS, _MOST_ROWS, _NUMBERS = 1024, 16384, 2**20  # of a chunk on a CPU
_ROWS_ON_GPU, _NUMBERS_ON_GPU = 2**18, 2**28
_WATCHED = 2048  # queries whose probabilities tell whether anything still moves
_SHARE_OF_GPU = 0.6  # of its free memory that may be filled with features


@dataclass(frozen=True)
class Watcher:
    """Who wants to know how far it is: told of phases with their rows, and of rows as they pass."""

    phase: Callable[[str, int], None] = lambda name, n_rows: None
    rows: Callable[[int], None] = lambda n_rows: None
    warn: Callable[[str], None] = lambda sentence: None


@dataclass(frozen=True, kw_only=True)
class ShardSummary:
    """What came out, the same in all processes."""

    n_queries: int
    n_shards: int
    n_steps: int
    converged: bool
    counts: dict[str, int]
    note: str
    seconds_per_step: float | None


def solve_shards(
    support: Path,
    queries: Path,
    out: Path,
    *,
    method: Method | None = None,
    ranks: Ranks = ALONE,
    force: bool = False,
    watcher: Watcher | None = None,
) -> ShardSummary:
    """Label the rows of many shards from labelled rows, as one task.

    Parameters
    ----------
    support
        Feature file with labels.
    queries
        Folder of shards, see ``shards/files.py``.
    out
        Folder for ``labels/NAME.safetensors`` of every shard, the state and ``run.json``. What was
        begun there by the same call goes on.
    method
        ``tim-adm`` (the default) or ``tim-auto``, with its settings.
    ranks
        This process among those that share the work; each reads its own shards.
    force
        Replace another solve in ``out``.

    Raises
    ------
    DataError, InvalidArgumentError
        If something does not fit; the sentence names the file. What was finished is kept.
    """
    method = method or method_by_name("tim-adm")
    job = _Job.prepared(support, queries, method, ranks, watcher or Watcher())
    if ranks.is_main:
        make_folder(out / "labels")
    with sole_writer(out) if ranks.is_main else nullcontext():
        progress = job.begun(out, force=force)
        progress, seconds = job.iterated(progress, out)
        counts = job.labelled(progress, out)
        summary = ShardSummary(
            n_queries=job.n_queries,
            n_shards=len(job.shards),
            n_steps=progress.n_steps,
            converged=progress.ended,
            counts=dict(zip(job.support.names, counts.tolist(), strict=True)),
            note=progress.note,
            seconds_per_step=seconds,
        )
        if ranks.is_main:
            job.describe(out, summary)
    return summary


def dealt_out(shards: Sequence[Shard], ranks: Ranks) -> list[Shard]:
    """Shards of this process: the largest first, each to whoever has the fewest rows."""
    load, owner = [0] * ranks.size, dict[str, int]()
    for shard in sorted(shards, key=lambda shard: (-shard.n_rows, shard.name)):
        least = load.index(min(load))
        load[least] += shard.n_rows
        owner[shard.name] = least
    return [shard for shard in shards if owner[shard.name] == ranks.rank]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Job:
    """Everything that was looked at before the work begins."""

    support: Support
    shards: list[Shard]
    solver: TimAdm | TimAuto
    ranks: Ranks
    watcher: Watcher
    facts: dict[str, Any]

    @classmethod
    def prepared(
        cls, support: Path, queries: Path, method: Method, ranks: Ranks, watcher: Watcher
    ) -> "_Job":
        """Read the support and the headers of all shards, and see that they fit."""
        solver = method.solver
        if not isinstance(solver, (TimAdm, TimAuto)):
            raise InvalidArgumentError(
                f"method must be one of {', '.join(METHODS)} for shards; got '{method.name}'."
            )
        if isinstance(solver, TimAdm) and not solver.linearized:
            raise InvalidArgumentError("shards are solved with linearized=True only.")
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
            "settings": solver.settings(),
        }
        ranks.agree("support, shards and settings", json.dumps(facts, sort_keys=True))
        job = cls(
            support=rows, shards=shards, solver=solver, ranks=ranks, watcher=watcher, facts=facts
        )
        if isinstance(solver, TimAuto) and job.n_queries < 2 * len(rows.names):
            raise DataError(
                f"{queries}: tim-auto needs at least two queries per class; got {job.n_queries} "
                f"for {len(rows.names)} classes."
            )
        return job

    @property
    def n_queries(self) -> int:
        """Rows of all shards."""
        return sum(shard.n_rows for shard in self.shards)

    @property
    def key(self) -> str:
        """Digest of everything that the solve depends on."""
        return hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).hexdigest()

    def begun(self, out: Path, *, force: bool) -> Progress:
        """What the same solve left there earlier, or its beginning; the same in all processes."""
        means = self.support.means()
        found = Progress(self.key, means, 0, 1.0)
        if self.ranks.is_main:
            earlier = None if force else read_progress(out)
            if earlier is not None and earlier.key != self.key:
                raise DataError(f"{out / STATE_NAME}: is of another solve; --force replaces it.")
            found = earlier or self._start(means)
        numbers = torch.tensor([found.n_steps, found.beta, found.ended], dtype=torch.float64)
        n_steps, beta, ended = self.ranks.from_main(numbers).tolist()
        weights = self.ranks.from_main(found.weights).cpu()
        return Progress(self.key, weights, int(n_steps), beta, found.note, bool(ended))

    def iterated(self, progress: Progress, out: Path) -> tuple[Progress, float | None]:
        """Progress after all iterations that are left, and the seconds each of them took."""
        n_left = 0 if progress.ended else self.solver.n_steps - progress.n_steps
        if n_left <= 0:
            return progress, None
        shares = slice(self.ranks.rank, None, self.ranks.size)
        z, y = (rows[shares].to(self.ranks.device) for rows in (self.support.z, self.support.y))
        adm = ShardedAdm(
            solver=self._adm(progress.beta),
            support=self._rows([Piece("", z, y)]),
            queries=self._queries(),
            n_support=len(self.support.z),
            n_queries=self.n_queries,
            ranks=self.ranks,
            on_rows=self.watcher.rows,
        )
        self.watcher.phase("solving", 2 * n_left * len(adm.queries))
        watched = self._sample(min(self.n_queries, _WATCHED)) if self.ranks.is_main else None
        start, begun_at, written = time.perf_counter(), progress.n_steps, None
        with ThreadPoolExecutor(1) as writer:  # waits for the disk while the next one is computed
            while progress.n_steps < begun_at + n_left and not progress.ended:
                progress = self._iteration(adm, progress, watched)
                if written is not None:
                    written.result()
                if self.ranks.is_main:
                    written = writer.submit(progress.write, out)
            if written is not None:
                written.result()
        return progress, (time.perf_counter() - start) / (progress.n_steps - begun_at)

    def _iteration(self, adm: ShardedAdm, progress: Progress, watched: Tensor | None) -> Progress:
        """One more iteration; ``watched`` are queries of the main process that must still move."""
        w, tolerance = adm.step(progress.weights), adm.solver.tolerance
        if not w.isfinite().all():
            raise DataError("the class weights went non-finite; are the settings extreme?")
        ended = False
        if tolerance is not None:
            moved = 0.0 if watched is None else adm.moved(watched, progress.weights, w)
            ended = self.ranks.main_says(moved <= tolerance)
        n_steps = progress.n_steps + 1
        return dataclasses.replace(progress, weights=w, n_steps=n_steps, ended=ended)

    def labelled(self, progress: Progress, out: Path) -> Tensor:
        """Write the labels of all shards that have none yet; how many rows got each class."""
        content = progress.weights.contiguous().numpy().tobytes()
        key = hashlib.sha256(self.key.encode() + content).hexdigest()
        classifier = Classifier.of(
            progress.weights, self._reporting_temperature(), self.ranks.device
        )
        own = dealt_out(self.shards, self.ranks)
        self.watcher.phase("labelling", sum(shard.n_rows for shard in own))
        total = torch.zeros(len(self.support.names), dtype=torch.int64)
        for shard in own:
            path = labels_path(out, shard.name)
            counts = known_counts(path, key, len(total))
            if counts is None:
                rows = self._rows([Piece(str(shard.path), shard.rows())])
                names, watch = self.support.names, self.watcher.rows
                counts = label_shard(path, rows, classifier, key, names, watch)
            else:
                self.watcher.rows(shard.n_rows)
            total += counts
        return self.ranks.sum(total).cpu()

    def describe(self, out: Path, summary: ShardSummary) -> None:
        """Write run.json, last of all: a folder with it is a finished solve."""
        text = {
            "format": _FORMAT,
            **self.facts,
            **dataclasses.asdict(summary),
            "processes": self.ranks.size,
            "device": self.ranks.device,
            "environment": environment(self.ranks.device),
        }
        write_atomically(out / SUMMARY_NAME, json.dumps(text, indent=1) + "\n")

    def _start(self, means: Tensor) -> Progress:
        """Before the first iteration: class means, and what a sample says of the balance."""
        solver, counts = self.solver, self.support.counts
        own_beta = 0.0 if isinstance(solver, TimAuto) else solver.marginal_entropy_weight
        plain = Progress(self.key, means, 0, own_beta)
        n_sample = sample_size(self.n_queries, len(means))
        told = isinstance(solver, TimAdm) and (solver.class_prior is not None or own_beta == 0)
        if told or n_sample < 2 * len(means):
            return plain
        self.watcher.phase("looking at a sample", 0)
        auto = solver if isinstance(solver, TimAuto) else TimAuto()
        support = self._rows([Piece("", self.support.z, self.support.y)])
        beta, note = decide_balance(auto, support, counts, means, self._sample(n_sample))
        if isinstance(solver, TimAuto):
            return Progress(self.key, shrunken(means, counts, auto.shrinkage), 0, beta, note)
        if beta < balance.EVEN:
            self.watcher.warn(
                f"{note} TIM-ADM makes classes equally frequent all the same, which may do harm: "
                "the method tim-auto does not, and a class prior tells it better."
            )
        return dataclasses.replace(plain, note=note)

    def _adm(self, beta: float) -> TimAdm:
        """What takes the steps."""
        solver = self.solver
        return solver.adm(beta, solver.n_steps) if isinstance(solver, TimAuto) else solver

    def _reporting_temperature(self) -> float:
        z, y = self.support.z.unsqueeze(0), self.support.y.unsqueeze(0)
        shape = TaskBatch(z, y, z.new_empty(1, self.n_queries, 0), len(self.support.names))
        return float(self.solver.reporting_temperature(shape))

    def _sample(self, n: int) -> Tensor:
        """Queries of unit length, evenly spaced over all shards."""
        wanted = balance.evenly_spaced(self.n_queries, n)
        some, first = [], 0
        for shard in self.shards:
            own = wanted[(wanted >= first) & (wanted < first + shard.n_rows)] - first
            z = shard.rows()[own].float()
            some.append(z * inverse_lengths(z, str(shard.path), own.tolist()))
            first += shard.n_rows
        return torch.cat(some)

    def _queries(self) -> Rows:
        """Own shards; on a GPU in its memory if they fit, in float16 if they are."""
        own = dealt_out(self.shards, self.ranks)
        rows = self._rows([Piece(str(shard.path), shard.rows()) for shard in own])
        device = self.ranks.device
        if device == "cpu":
            return rows
        halves = all(shard.dtype.itemsize == 2 for shard in own)
        fast = halves and len(self.support.names) <= half.MOST_CLASSES
        fast = fast and kernels.available(torch.device(device))
        free, _ = torch.cuda.mem_get_info(device)
        if sum(piece.rows.nbytes for piece in rows.pieces) > _SHARE_OF_GPU * free:
            return dataclasses.replace(rows, as_stored=fast)
        pieces = []
        for piece in rows.pieces:
            z = piece.rows.to(device)
            inverse = inverse_lengths(z, piece.name, range(len(z))) if fast else None
            pieces.append(dataclasses.replace(piece, rows=z, inverse=inverse))
        return dataclasses.replace(rows, pieces=pieces, as_stored=fast)

    def _rows(self, pieces: list[Piece]) -> Rows:
        n_classes, dim = len(self.support.names), self.support.z.shape[1]
        if self.ranks.device == "cpu":
            n_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _NUMBERS // (n_classes + dim)))
            return Rows(pieces, n_rows, n_threads=torch.get_num_threads())
        return Rows(pieces, min(_ROWS_ON_GPU, _NUMBERS_ON_GPU // n_classes), self.ranks.device)
