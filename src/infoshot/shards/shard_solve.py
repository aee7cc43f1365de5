"""The solve of one task over shards: start or resume, iterate, label, summarise."""

import dataclasses
import hashlib
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from infoshot.core.atomic import sole_writer
from infoshot.core.environment import environment
from infoshot.core.errors import DataError, ImbalanceWarning
from infoshot.core.leftovers import record_writer
from infoshot.core.parallel import map_chunks
from infoshot.core.progress import SILENT, Progress
from infoshot.shards.output_folder import COPIES_NAME, OutputFolder, ResumeState
from infoshot.shards.parquet_labels import read_parquet_counts, write_parquet_labels
from infoshot.shards.parquet_shard import ParquetShard, check_space, remove_copies
from infoshot.shards.sample_check import check_balance, choose_temperature, sample_size
from infoshot.shards.shard_queries import (
    check_lengths,
    find_query_centres,
    own_queries,
    queries_of,
    sample_queries,
)
from infoshot.shards.shard_reader import Shard
from infoshot.shards.shard_task import ShardTask
from infoshot.solvers import TimAdm, TimAuto, balance
from infoshot.solvers.baselines.prototype import shrink
from infoshot.solvers.pooling import MEANS_TEMPERATURE
from infoshot.solvers.sharded.passes import Classifier, best_classes
from infoshot.solvers.sharded.rows import Piece, Rows
from infoshot.solvers.sharded.sharded_adm import ShardedAdm

_WATCHED = 2048  # queries whose probabilities are compared with the tolerance


@dataclass(frozen=True, kw_only=True)
class ShardSummary:
    """The result of a solve over shards; equal in all processes, except that only one has a note.

    Attributes
    ----------
    out
        Folder of the results.
    n_queries, n_shards
        Rows of all shards, and number of shards.
    n_steps, converged
        Iterations, and whether the solve stopped before the last one because of the tolerance.
    counts
        Number of rows labelled as each class.
    note
        What a sample of the queries shows about the class balance.
    seconds_per_step
        Mean time of an iteration; ``None`` if this call took none.
    was_finished
        Whether the results existed before this call.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from infoshot import FeatureTable, solve_shards, write_features
    >>> z, y = torch.eye(2).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     write_features(folder / "few.safetensors", FeatureTable(z, y))
    ...     (folder / "shards").mkdir()
    ...     np.save(folder / "shards" / "part0.npy", z.numpy())
    ...     summary = solve_shards(folder / "few.safetensors", folder / "shards", folder / "run")
    >>> summary.n_queries, summary.n_shards, summary.was_finished
    (8, 1, False)
    """

    out: Path
    n_queries: int
    n_shards: int
    n_steps: int
    converged: bool
    counts: dict[str, int]
    note: str
    seconds_per_step: float | None
    was_finished: bool


def solve_task(
    task: ShardTask, out: Path, *, force: bool = False, progress: Progress = SILENT
) -> ShardSummary:
    """Solve a task and write its results, or resume where an earlier call stopped.

    Parameters
    ----------
    task
        What to solve.
    out
        Folder for the results.
    force
        Replace another solve in ``out``.
    progress
        Counts the iterations of the solve, and the rows of the other phases.

    Raises
    ------
    DataError
        If ``out`` holds something else, or a file cannot be read or written.
    """
    solve = _ShardSolve(task, OutputFolder(out), progress)
    is_main = task.ranks.is_main
    if is_main:
        solve.folder.make()
    with sole_writer(out) if is_main else nullcontext():
        state = solve.start_or_resume(force=force)
        if not is_main:
            record_writer(out)  # the main process has locked the folder by now
        state, seconds, measured = solve.iterate(state)
        counts, n_labelled = solve.label_shards(state, measured)
        had_summary = task.ranks.broadcast_flag(solve.folder.has_summary())
        summary = ShardSummary(
            out=out,
            n_queries=task.n_queries,
            n_shards=len(task.shards),
            n_steps=state.n_steps,
            converged=state.converged,
            counts=dict(zip(task.support.names, counts.tolist(), strict=True)),
            note=state.note,
            seconds_per_step=seconds,
            was_finished=seconds is None and n_labelled == 0 and had_summary,
        )
        if is_main and not summary.was_finished:
            solve.write_summary(summary)
        if is_main:
            remove_copies(out / COPIES_NAME)
    return summary


@dataclass(frozen=True, eq=False)
class _ShardSolve:
    """A task, the folder of its results, and where progress is reported."""

    task: ShardTask
    folder: OutputFolder
    progress: Progress

    def start_or_resume(self, *, force: bool) -> ResumeState:
        """State that an earlier call left, or the initial one; the same in all processes."""
        task, ranks, means = self.task, self.task.ranks, self.task.support.means()
        n_centres, dim = task.n_centres, means.shape[1]
        earlier = None
        if ranks.is_main:
            self.folder.check_kind()
            if not force:
                earlier = self.folder.read_state(task.provenance, tuple(means.shape), n_centres)
        if not ranks.broadcast_flag(earlier is not None and self.folder.has_summary()):
            self._decode_shards()
        if ranks.broadcast_flag(earlier is not None):
            centres = torch.zeros(n_centres, dim) if earlier is None else earlier.centres
        else:
            centres = self._find_centres()
        centres = ranks.broadcast(centres).cpu()
        state = earlier or ResumeState(task.provenance, means, centres, 0, 1.0)
        if ranks.is_main and earlier is None:
            state = self._initial_state(state)
            self.folder.clear()
        elif state.n_steps:
            self.progress.say(f"resuming after iteration {state.n_steps}")
        numbers = torch.tensor([state.n_steps, state.beta, state.converged], dtype=torch.float64)
        n_steps, beta, converged = ranks.broadcast(numbers).tolist()
        return dataclasses.replace(
            state,
            weights=ranks.broadcast(state.weights).cpu(),
            n_steps=int(n_steps),
            beta=beta,
            converged=bool(converged),
        )

    def _decode_shards(self) -> None:
        """Decode the Parquet shards of this process, and wait for the other processes."""
        task = self.task
        if not any(isinstance(shard, ParquetShard) for shard in task.shards):
            return
        own = [shard for shard in task.own_shards() if isinstance(shard, ParquetShard)]
        if not task.ranks.is_main:
            record_writer(self.folder.path)  # the main process has locked the folder by now
        check_space(own)
        self._start_phase("decoding Parquet", sum(shard.n_rows for shard in own))
        n_threads = task.in_chunks([]).n_threads
        for shard, _ in zip(own, map_chunks(ParquetShard.decode, own, n_threads), strict=True):
            self._advance(shard.n_rows)
        task.ranks.sum(torch.zeros(1))

    def _find_centres(self) -> Tensor:
        """Find the centres that queries are averaged with, after a check of their lengths."""
        if self.task.ranks.is_main:
            check_lengths(self.task)
        if self.task.n_centres:
            self.progress.start("finding centres of the queries")
        return find_query_centres(self.task)

    def iterate(self, state: ResumeState) -> tuple[ResumeState, float | None, Sequence[Piece]]:
        """Take the remaining iterations.

        Returns
        -------
        The state, the seconds of an iteration, and the queries of this process, measured; without
        iterations ``None`` and no queries.
        """
        task, ranks = self.task, self.task.ranks
        n_left = 0 if state.converged else task.solver.n_steps - state.n_steps
        if n_left <= 0:
            return state, None, []
        preparation, solver = task.preparation(state.centres), task.adm(state.beta)
        adm = ShardedAdm(
            solver=solver,
            support=task.own_support(),
            queries=own_queries(task, preparation),
            n_support=len(task.support.z),
            n_queries=task.n_queries,
            sum_over_processes=ranks.sum,
        )
        self.progress.start("solving", n_left, "iterations")
        watched = None
        if ranks.is_main and solver.tolerance is not None:
            watched = sample_queries(task, min(task.n_queries, _WATCHED), preparation)
        start, first, written = time.perf_counter(), state.n_steps, None
        with ThreadPoolExecutor(1) as writer:  # writes a state while the next one is computed
            while state.n_steps < first + n_left and not state.converged:
                state = self._take_step(adm, state, watched)
                self.progress.advance()
                if written is not None:
                    written.result()
                if ranks.is_main:
                    written = writer.submit(self.folder.write_state, state)
            if written is not None:
                written.result()
        seconds = (time.perf_counter() - start) / (state.n_steps - first)
        return state, seconds, adm.queries.pieces

    def label_shards(self, state: ResumeState, measured: Sequence[Piece]) -> tuple[Tensor, int]:
        """Label all shards that have no labels of this solve.

        ``measured`` are the queries of this process, if iterations were taken.

        Returns
        -------
        Number of rows of each class, ``(class,)``, and number of shards that were labelled now.
        """
        task = self.task
        weights = state.weights.contiguous().numpy().tobytes()
        key = hashlib.sha256(task.key.encode() + weights).hexdigest()
        temperature = self._reporting_temperature(state.beta)
        classifier = Classifier.of(
            state.weights, temperature, task.ranks.device, whitening=task.support.whitening
        )
        own, n_classes = task.own_shards(), len(task.support.names)
        preparation = task.preparation(state.centres)
        pieces = {piece.name: piece for piece in measured}
        self._start_phase("labelling", sum(shard.n_rows for shard in own))
        totals = torch.zeros(n_classes + 1, dtype=torch.int64)
        for shard in own:
            counts = self._read_counts(shard, key)
            if counts is None:
                rows = queries_of(task, [shard], preparation)
                if known := pieces.get(str(shard.path)):
                    rows = dataclasses.replace(rows, pieces=[known])
                labels = self._label_shard(shard, rows, classifier, key)
                counts = labels.long().bincount(minlength=n_classes)
                totals[-1] += 1
            else:
                self._advance(shard.n_rows)
            totals[:-1] += counts
        totals = task.ranks.sum(totals).cpu()
        return totals[:-1], int(totals[-1])

    def write_summary(self, summary: ShardSummary) -> None:
        """Write ``run.json``."""
        ranks, facts = self.task.ranks, dataclasses.asdict(summary)
        del facts["out"]
        about = {
            "processes": ranks.size,
            "device": ranks.device,
            "environment": environment(ranks.device),
        }
        self.folder.write_summary({**self.task.provenance, **facts, **about})

    def _initial_state(self, state: ResumeState) -> ResumeState:
        """State before the first iteration: class means, and the balance that a sample suggests."""
        task, solver, counts = self.task, self.task.solver, self.task.support.counts
        beta = 0.0 if isinstance(solver, TimAuto) else solver.marginal_entropy_weight
        plain, means = dataclasses.replace(state, beta=beta), state.weights
        n_sample = sample_size(task.n_queries, len(means))
        decided = isinstance(solver, TimAdm) and (solver.class_prior is not None or beta == 0)
        if decided or n_sample < 2 * len(means):
            return plain
        self.progress.start("checking the class balance on a sample")
        auto = solver if isinstance(solver, TimAuto) else TimAuto()
        support = task.in_chunks([Piece.prepared(task.support.z, task.support.y)])
        sample = sample_queries(task, n_sample, task.preparation(state.centres))
        found = check_balance(auto, support, counts, means, sample)
        if isinstance(solver, TimAuto):
            weights = shrink(means, counts, auto.shrinkage)
            return dataclasses.replace(plain, weights=weights, beta=found.beta, note=found.note)
        if found.beta < balance.BALANCED:
            warnings.warn(
                f"{found.evidence} TIM-ADM assumes equally frequent classes, which can greatly "
                "reduce the accuracy here: use the method tim-auto, or pass the class shares as "
                "prior.",
                ImbalanceWarning,
                stacklevel=5,  # who called solve_shards
            )
        return dataclasses.replace(plain, note=found.evidence)

    def _reporting_temperature(self, beta: float) -> float:
        """Temperature of the reported probabilities; the same in all processes."""
        task, solver, counts = self.task, self.task.solver, self.task.support.counts
        if isinstance(solver, TimAdm):
            return solver.temperature
        if task.n_queries < 2 * len(counts):
            return MEANS_TEMPERATURE
        n_sample = sample_size(task.n_queries, len(counts))
        sample = sample_queries(task, n_sample, task.preparation())
        return choose_temperature(solver, task.support.z, task.support.y, sample, beta)

    def _take_step(
        self, adm: ShardedAdm, state: ResumeState, watched: Tensor | None
    ) -> ResumeState:
        """Take one iteration; the main process compares the ``watched`` queries' probabilities."""
        w, tolerance = adm.step(state.weights), adm.solver.tolerance
        if not w.isfinite().all():
            raise DataError("the class weights are not finite any more; are the settings extreme?")
        converged = False
        if tolerance is not None:
            moved = 0.0 if watched is None else adm.moved(watched, state.weights, w)
            converged = self.task.ranks.broadcast_flag(moved <= tolerance)
        return dataclasses.replace(state, weights=w, n_steps=state.n_steps + 1, converged=converged)

    def _label_shard(self, shard: Shard, rows: Rows, classifier: Classifier, key: str) -> Tensor:
        """Write label, confidence and margin of every row of a shard; return the labels."""
        labels = torch.empty(shard.n_rows, dtype=torch.int32)
        confidence, margin = torch.empty(shard.n_rows), torch.empty(shard.n_rows)
        done = 0
        for n_new, (label, best, ahead) in rows.map(partial(best_classes, classifier=classifier)):
            some = slice(done, done + n_new)
            labels[some], confidence[some], margin[some] = label, best, ahead
            done += n_new
            self._advance(n_new)
        tensors = {"labels": labels, "confidence": confidence, "margin": margin}
        names = self.task.support.names
        if isinstance(shard, ParquetShard):
            path, key = self.folder.parquet_file(shard.name), _with_columns(key, shard)
            write_parquet_labels(path, shard.read_kept(), tensors, solve=key, class_names=names)
        else:
            self.folder.write_labels(shard.name, tensors, solve=key, class_names=names)
        return labels

    def _read_counts(self, shard: Shard, key: str) -> Tensor | None:
        """Count the labels of a shard that the same solve has written, if any."""
        n_rows, n_classes = shard.n_rows, len(self.task.support.names)
        if isinstance(shard, ParquetShard):
            path, key = self.folder.parquet_file(shard.name), _with_columns(key, shard)
            return read_parquet_counts(path, solve=key, n_rows=n_rows, n_classes=n_classes)
        return self.folder.read_counts(shard.name, solve=key, n_rows=n_rows, n_classes=n_classes)

    def _start_phase(self, name: str, n_own_rows: int) -> None:
        # Only the main process reports; the others have about as many rows.
        self.progress.start(name, n_own_rows * self.task.ranks.size, "rows")

    def _advance(self, n_own_rows: int) -> None:
        self.progress.advance(n_own_rows * self.task.ranks.size)


def _with_columns(key: str, shard: ParquetShard) -> str:
    """Key of the labels of a Parquet shard, which also depend on the columns that are kept."""
    keep = shard.columns.keep
    return key if keep is None else hashlib.sha256(f"{key} {[*keep]}".encode()).hexdigest()
