"""A solve over shards from files to files: take up what was begun, iterate, label."""

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoshot.core.atomic import make_folder, sole_writer, write_atomically
from infoshot.core.environment import environment
from infoshot.core.errors import DataError
from infoshot.distributed import ALONE, Ranks
from infoshot.shards.labels import known_counts, label_shard, labels_path
from infoshot.shards.plan import Plan
from infoshot.shards.progress import STATE_NAME, Progress, read_progress
from infoshot.shards.sample_check import decide_balance, sample_size
from infoshot.solvers import Method, TimAdm, TimAuto, balance, method_by_name
from infoshot.solvers.baselines.prototype import shrink
from infoshot.solvers.sharded.passes import Classifier
from infoshot.solvers.sharded.rows import Piece
from infoshot.solvers.sharded.sharded_adm import ShardedAdm

SUMMARY_NAME = "run.json"
_FORMAT = "infoshot.solve-shards/1"
_WATCHED = 2048  # queries whose probabilities tell whether anything still moves


@dataclass(frozen=True)
class Watcher:
    """Who wants to know how far it is: told of phases with their rows, and of rows as they pass."""

    phase: Callable[[str, int], None] = lambda name, n_rows: None
    rows: Callable[[int], None] = lambda n_rows: None
    warn: Callable[[str], None] = lambda sentence: None


@dataclass(frozen=True, kw_only=True)
class ShardSummary:
    """What came out, but for the note the same in all processes.

    ``was_finished``: all was there already.
    """

    n_queries: int
    n_shards: int
    n_steps: int
    converged: bool
    counts: dict[str, int]
    note: str
    seconds_per_step: float | None
    was_finished: bool


def solve_shards(
    support: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    out: str | os.PathLike[str],
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
        ``tim-adm`` (the default) or ``tim-auto``, with its settings:
        ``method_by_name("tim-adm").with_settings({"n_steps": 50, "tolerance": 0.01})``.
    ranks
        This process among those that share the work, from ``joined_ranks``; each reads its own
        shards.
    force
        Replace another solve in ``out``.
    watcher
        Who is told how far it is.

    Raises
    ------
    DataError, InvalidArgumentError
        If something does not fit; the sentence names the file. What was finished is kept.
    """
    support, queries, out = Path(support), Path(queries), Path(out)
    if out.resolve() == queries.resolve():
        raise DataError(f"{out}: results must go to another folder than the shards.")
    method = method or method_by_name("tim-adm")
    plan = Plan.prepared(support, queries, method, ranks)
    job = _Job(plan, out, watcher or Watcher())
    if ranks.is_main:
        make_folder(out / "labels")
    with sole_writer(out) if ranks.is_main else nullcontext():
        progress = job.begun(force=force)
        progress, seconds = job.iterated(progress)
        counts, n_made = job.labelled(progress)
        summary = ShardSummary(
            n_queries=plan.n_queries,
            n_shards=len(plan.shards),
            n_steps=progress.n_steps,
            converged=progress.ended,
            counts=dict(zip(plan.support.names, counts.tolist(), strict=True)),
            note=progress.note,
            seconds_per_step=seconds,
            was_finished=seconds is None and n_made == 0,
        )
        if ranks.is_main and not (summary.was_finished and (out / SUMMARY_NAME).exists()):
            job.describe(summary)
    return summary


@dataclass(frozen=True, eq=False)
class _Job:
    """A plan that is carried out in a folder."""

    plan: Plan
    out: Path
    watcher: Watcher

    def begun(self, *, force: bool) -> Progress:
        """What the same solve left there earlier, or its beginning; the same in all processes."""
        means = self.plan.support.means()
        found = Progress(self.plan.facts, means, 0, 1.0)
        if self.plan.ranks.is_main:
            earlier = self._earlier(force=force)
            found = earlier or self._start(means)
            if earlier is None:
                self._clear()
        numbers = torch.tensor([found.n_steps, found.beta, found.ended], dtype=torch.float64)
        n_steps, beta, ended = self.plan.ranks.from_main(numbers).tolist()
        weights = self.plan.ranks.from_main(found.weights).cpu()
        if found.n_steps:
            self.watcher.phase(f"going on from iteration {found.n_steps}", 0)
        return Progress(self.plan.facts, weights, int(n_steps), beta, found.note, bool(ended))

    def iterated(self, progress: Progress) -> tuple[Progress, float | None]:
        """Progress after all iterations that are left, and the seconds each of them took."""
        n_left = 0 if progress.ended else self.plan.solver.n_steps - progress.n_steps
        if n_left <= 0:
            return progress, None
        adm = ShardedAdm(
            solver=self.plan.adm(progress.beta),
            support=self.plan.own_support(),
            queries=self.plan.own_queries(),
            n_support=len(self.plan.support.z),
            n_queries=self.plan.n_queries,
            sum_over_processes=self.plan.ranks.sum,
            on_rows=self.watcher.rows,
        )
        self.watcher.phase("solving", 2 * n_left * len(adm.queries))
        n_watched = min(self.plan.n_queries, _WATCHED)
        watched = self.plan.sample(n_watched) if self.plan.ranks.is_main else None
        start, begun_at, written = time.perf_counter(), progress.n_steps, None
        with ThreadPoolExecutor(1) as writer:  # waits for the disk while the next one is computed
            while progress.n_steps < begun_at + n_left and not progress.ended:
                progress = self._iteration(adm, progress, watched)
                if written is not None:
                    written.result()
                if self.plan.ranks.is_main:
                    written = writer.submit(progress.write, self.out)
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
            ended = self.plan.ranks.main_says(moved <= tolerance)
        n_steps = progress.n_steps + 1
        return dataclasses.replace(progress, weights=w, n_steps=n_steps, ended=ended)

    def labelled(self, progress: Progress) -> tuple[Tensor, int]:
        """Label the shards that are not yet; how many rows got each class, how many were made."""
        content = progress.weights.contiguous().numpy().tobytes()
        key = hashlib.sha256(self.plan.key.encode() + content).hexdigest()
        classifier = Classifier.of(
            progress.weights, self.plan.reporting_temperature(), self.plan.ranks.device
        )
        own = self.plan.own_shards()
        self.watcher.phase("labelling", sum(shard.n_rows for shard in own))
        n_classes = len(self.plan.support.names)
        total = torch.zeros(n_classes + 1, dtype=torch.int64)
        for shard in own:
            path = labels_path(self.out, shard.name)
            counts = known_counts(path, key, n_classes)
            if counts is None:
                rows = self.plan.rows([Piece(str(shard.path), shard.rows())])
                names, watch = self.plan.support.names, self.watcher.rows
                counts = label_shard(path, rows, classifier, key, names, watch)
                total[-1] += 1
            else:
                self.watcher.rows(shard.n_rows)
            total[:-1] += counts
        total = self.plan.ranks.sum(total).cpu()
        return total[:-1], int(total[-1])

    def describe(self, summary: ShardSummary) -> None:
        """Write run.json, last of all: a folder with it is a finished solve."""
        text = {
            "format": _FORMAT,
            **self.plan.facts,
            **dataclasses.asdict(summary),
            "processes": self.plan.ranks.size,
            "device": self.plan.ranks.device,
            "environment": environment(self.plan.ranks.device),
        }
        write_atomically(self.out / SUMMARY_NAME, json.dumps(text, indent=1) + "\n")

    def _earlier(self, *, force: bool) -> Progress | None:
        """What this solve left there; refuse a folder that holds something else."""
        if (self.out / SUMMARY_NAME).exists() and not (self.out / STATE_NAME).exists():
            raise DataError(f"{self.out / SUMMARY_NAME}: is of another run; take another folder.")
        if force:
            return None
        earlier = read_progress(self.out)
        if earlier is not None and earlier.facts != self.plan.facts:
            raise DataError(
                f"{self.out / STATE_NAME}: is of another solve "
                f"({_difference(earlier.facts, self.plan.facts)}); --force replaces it."
            )
        return earlier

    def _clear(self) -> None:
        """Take away what a solve that is replaced has left: it would be taken for a result."""
        for name in (SUMMARY_NAME, STATE_NAME):
            (self.out / name).unlink(missing_ok=True)
        for path in (self.out / "labels").glob("*.safetensors"):
            path.unlink()

    def _start(self, means: Tensor) -> Progress:
        """Before the first iteration: class means, and what a sample says of the balance."""
        solver, counts = self.plan.solver, self.plan.support.counts
        own_beta = 0.0 if isinstance(solver, TimAuto) else solver.marginal_entropy_weight
        plain = Progress(self.plan.facts, means, 0, own_beta)
        n_sample = sample_size(self.plan.n_queries, len(means))
        told = isinstance(solver, TimAdm) and (solver.class_prior is not None or own_beta == 0)
        if told or n_sample < 2 * len(means):
            return plain
        self.watcher.phase("looking at a sample", 0)
        auto = solver if isinstance(solver, TimAuto) else TimAuto()
        support = self.plan.rows([Piece("", self.plan.support.z, self.plan.support.y)])
        found = decide_balance(auto, support, counts, means, self.plan.sample(n_sample))
        if isinstance(solver, TimAuto):
            weights = shrink(means, counts, auto.shrinkage)
            return dataclasses.replace(plain, weights=weights, beta=found.beta, note=found.note)
        if found.beta < balance.BALANCED:
            self.watcher.warn(
                f"{found.evidence} TIM-ADM makes classes equally frequent all the same, which can "
                "do great harm: the method tim-auto does not, and a class prior tells it the "
                "shares (--method tim-auto, --prior)."
            )
        return dataclasses.replace(plain, note=found.evidence)


def _difference(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing in which two solves differ, in words."""
    for what in ("method", "settings"):
        if earlier[what] != now[what]:
            return f"its {what} are others" if what == "settings" else f"by {earlier[what]}"
    if earlier["support_sha256"] != now["support_sha256"]:
        return "its support is another"
    changed = sorted(set(earlier["shards"]) ^ set(now["shards"]))
    return f"shards have changed: {changed[0].split(':')[0]}"
