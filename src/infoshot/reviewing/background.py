"""Solve a run again in the background, a moment after the last answer."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from infoshot.core.errors import InfoshotError
from infoshot.labelling.run_files import FACTS
from infoshot.reviewing.worker_process import WorkerProcess

PAUSE = 0.3  # seconds after the last answer
_POLL = 1.0  # seconds between looks at run.json, which other commands may replace
_PATIENCE = 30.0  # seconds to wait for another process that writes to the run
_BUSY = "another process is writing"


@dataclass(frozen=True)
class SolveState:
    """How far the labels are: ``idle``, ``waiting``, ``solving`` or ``failed``.

    ``version`` counts the solves of this server; ``n_changed`` and ``seconds`` are of the last one.
    """

    state: str = "idle"
    version: int = 0
    n_changed: int = 0
    seconds: float = 0.0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as the page gets it."""
        return asdict(self)


class SolveLoop:
    """A thread that asks a worker to solve the run when answers have come.

    Parameters
    ----------
    run
        Folder of the run.
    worker
        Solves it.
    on_solved
        Called with the photos to label next after the run was replaced, by the worker or (then with
        ``None``) by another command; returns how many labels changed.
    on_state
        Called when the state changes.
    """

    def __init__(
        self,
        run: Path,
        worker: WorkerProcess,
        on_solved: Callable[[Sequence[int] | None], int],
        on_state: Callable[[SolveState], None],
    ) -> None:
        self.state = SolveState()
        self._facts, self._worker = run / FACTS, worker
        self._on_solved, self._on_state = on_solved, on_state
        self._due: float | None = None
        self._finishing: Callable[[], dict[str, Any]] | None = None
        self._on_finished: Callable[[dict[str, Any]], None] = lambda _: None
        self._closed = False
        self._wake = threading.Condition()
        self._seen = self._look()
        self._thread = threading.Thread(target=self._run, name="infoshot-solve", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def touch(self) -> None:
        """Solve a moment after the last call."""
        with self._wake:
            self._due = time.monotonic() + PAUSE
            self._wake.notify()
        if self.state.state in ("idle", "failed"):
            self._set(replace(self.state, state="waiting", error=None))

    def finish(
        self, prepare: Callable[[], dict[str, Any]], on_finished: Callable[[dict[str, Any]], None]
    ) -> None:
        """Solve what is pending, then write the run with what ``prepare`` returns."""
        with self._wake:
            self._finishing, self._on_finished = prepare, on_finished
            self._wake.notify()

    def close(self) -> None:
        """Stop; a solve that is running is given up."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._worker.close()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        with suppress(InfoshotError):  # such as features that are not cached: a solve says so
            list(self._worker.ask("prepare"))
        while not self._closed:
            with self._wake:
                self._wake.wait(self._wait_time())
                due = self._due is not None and time.monotonic() >= self._due
                finishing = self._finishing
                due = due or (finishing is not None and self._due is not None)
                if due:
                    self._due = None
                if finishing is not None:
                    self._finishing = None
            if due and not self._closed:
                self._solve({})
            elif finishing is None and self._look() != self._seen:
                self._take(None, time.perf_counter())
            if finishing is not None and not self._closed:
                self._finish(finishing)

    def _wait_time(self) -> float:
        if self._finishing is not None or self._closed:
            return 0
        return _POLL if self._due is None else max(0.0, self._due - time.monotonic())

    def _finish(self, prepare: Callable[[], dict[str, Any]]) -> None:
        try:
            request = prepare()
        except InfoshotError as error:
            self._set(replace(self.state, state="failed", error=str(error)))
            return
        if self._solve(request):
            self._on_finished(request["statement"])

    def _solve(self, request: dict[str, Any]) -> bool:
        self._set(replace(self.state, state="solving", error=None))
        start = time.perf_counter()
        try:
            (reply,) = self._ask(request)
        except InfoshotError as error:
            if not self._closed:
                self._set(replace(self.state, state="failed", error=str(error)))
            return False
        self._take(reply["suggested"], start)
        return True

    def _ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Ask the worker, again if another process is writing to the run at this moment."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return list(self._worker.ask("solve", **request))
            except InfoshotError as error:
                if _BUSY not in str(error) or time.monotonic() > until or self._closed:
                    raise
            time.sleep(0.2)

    def _take(self, suggested: Sequence[int] | None, start: float) -> None:
        """Take over a run that was replaced."""
        self._seen = self._look()
        try:
            n_changed = self._on_solved(suggested)
        except InfoshotError as error:
            self._set(replace(self.state, state="failed", error=str(error)))
            return
        with self._wake:
            waiting = self._due is not None
        self._set(
            SolveState(
                "waiting" if waiting else "idle",
                self.state.version + 1,
                n_changed,
                round(time.perf_counter() - start, 2),
            )
        )

    def _look(self) -> tuple[int, int] | None:
        """Return what tells whether run.json was replaced."""
        try:
            facts = self._facts.stat()
        except OSError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    def _set(self, state: SolveState) -> None:
        self.state = state
        self._on_state(state)
