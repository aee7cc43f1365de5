"""A review of a run: its items, the answers of a person, and the labels that follow from them."""

import tempfile
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.label_names import NONE, strip_name
from infoshot.labelling.answer_log import Answer, Entry
from infoshot.labelling.corrections import read_corrections
from infoshot.labelling.exports import EXPORTS
from infoshot.reviewing.answer_rules import (
    check_class,
    check_conflicts,
    check_new_class,
    make_answers,
)
from infoshot.reviewing.assessment import Assessment, Statement
from infoshot.reviewing.audit import Round
from infoshot.reviewing.background import SolveLoop, SolveState
from infoshot.reviewing.explorer import Explorer
from infoshot.reviewing.history import ANSWERS, UNDOABLE, History
from infoshot.reviewing.items import (
    announce_entry,
    describe_entry,
    describe_item,
    pack_points,
    touched_items,
)
from infoshot.reviewing.marks import Marks
from infoshot.reviewing.pool import read_pool
from infoshot.reviewing.promise import assess
from infoshot.reviewing.subscriptions import Publisher, Subscription
from infoshot.reviewing.views import ViewQuery, count_views, list_items
from infoshot.reviewing.worker_process import WorkerProcess

_MOST_GROUPS = 300
_FEWEST = 2  # unanswered photos of a group that is shown


class Session:
    """The state of a review. All methods may be called from any thread.

    Parameters
    ----------
    run
        Folder of a finished run. The caller makes sure that it has one session.
    compute
        Whether to solve in the background, and to compute the map and groups.

    Raises
    ------
    DataError
        If there is no finished run, or its files are damaged or cannot be written.
    """

    def __init__(self, run: Path, *, compute: bool = True) -> None:
        self.run = run
        self._lock = threading.RLock()
        self._pool = read_pool(run)
        known = read_corrections(run, self._pool.facts)
        self._history = History(run, known.answers, known.n_entries)
        self._marks = Marks(self._pool, self._history)
        self._publisher = Publisher()
        self._scratch = tempfile.TemporaryDirectory(prefix="infoshot-review-")
        scratch = Path(self._scratch.name)
        self._explorer = Explorer(run, scratch, self._take_suggestions, self._tell_found)
        self._loop = SolveLoop(run, WorkerProcess(run, scratch), self._take_run, self._tell_solve)
        if compute:
            self._loop.start()
            self._explorer.start()
            if self._has_pending():
                self._loop.touch()

    @property
    def n_photos(self) -> int:
        """How many items are photos."""
        return self._pool.n_photos

    @property
    def n_items(self) -> int:
        """Photos and examples."""
        return self._pool.n_items

    def state(self) -> dict[str, Any]:
        """Return what the page shows around the photos."""
        with self._lock:
            pool = self._pool
            return {
                "run": str(self.run),
                "items": pool.items_digest,
                "n_photos": pool.n_photos,
                "n_examples": len(pool.examples),
                "n_unreadable": int((~pool.readable).sum()),
                "classes": self._marks.count_classes(),
                "none": NONE,
                "entry": self._history.n_entries,
                "solve": self._loop.state.to_json(),
                "views": count_views(pool, self._marks),
                "n_audited": len(self._history.audited()),
                "projection": self._explorer.map[0] if self._explorer.map else None,
                "can_change_classes": not pool.has_fixed_classes,
                "exports": [name for name in EXPORTS if (self.run / name).exists()],
                "all_exports": list(EXPORTS),
                "enough": self.enough(),
                "finished": self._statement(),
            }

    def items(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """Return the details of some items."""
        with self._lock:
            self._check_ids(ids)
            return [describe_item(n, self._pool, self._marks) for n in ids]

    def view(self, query: ViewQuery) -> NDArray[np.int32]:
        """Return the numbers of the items of a view, in order."""
        with self._lock:
            return list_items(query, self._pool, self._marks, self._explorer.vectors)

    def points(self) -> bytes:
        """Return label, confidence and flags of every photo, 4 bytes each."""
        with self._lock:
            return pack_points(self._pool, self._marks)

    def map(self) -> tuple[str, bytes] | None:
        """Return the name of the projection, and the positions of the photos."""
        with self._lock:
            found = self._explorer.map
            return (found[0], found[1].astype("<f4").tobytes()) if found else None

    def groups(self) -> list[dict[str, Any]] | None:
        """Return groups of similar photos with at least two without an answer."""
        with self._lock:
            if self._explorer.groups is None:
                return None
            found = [self._marks.describe_group(ids) for ids in self._explorer.groups]
            waiting = [group for group in found if group["n_open"] >= _FEWEST]
            return waiting[:_MOST_GROUPS]

    def history(self, before: int | None, limit: int) -> list[dict[str, Any]]:
        """Return entries of the log, the latest first."""
        with self._lock:
            entries = [e for e in self._history.entries if before is None or e.n < before]
            done = {entry.n for entry in self._history.done}
            undone = {entry.n for entry in entries if entry.action in UNDOABLE} - done
            shown = reversed(entries[-limit:] if limit else [])
            return [
                {**describe_entry(entry, self._pool), "undone": entry.n in undone}
                for entry in shown
            ]

    def answer(
        self,
        action: str,
        ids: Sequence[int],
        *,
        label: str = "",
        client: str = "",
        seen: int = 0,
        items: str = "",
        replace: bool = False,
    ) -> dict[str, Any]:
        """Store an answer to some items; it is on the disk when this returns.

        Parameters
        ----------
        action
            ``label``, ``accept`` (the solver's label), ``reject`` (none of the classes), ``clear``,
            ``skip`` or ``audit``.
        ids
            Numbers of the items. Photos with the same content get the same answer.
        label
            The class for ``label``; for ``audit`` also ``NONE``. For ``accept`` the label that the
            page showed, in case that a solve has changed it since; empty for that of now.
        client, seen, items, replace
            Which page asks, the last entry and the items (see :meth:`state`) that it knows of, and
            whether to replace what another page has answered since.

        Raises
        ------
        Conflict
            If another page has answered one of them differently since ``seen``.
        InvalidArgumentError, DataError
            If an argument does not fit, or the answer cannot be stored.
        """
        with self._lock:
            self._check_ids(ids)
            if items not in ("", self._pool.items_digest):
                raise InvalidArgumentError("the run has other photos now; reload the page.")
            if action == "skip":
                paths = [self._pool.paths[n] for n in ids]
                return self._store("skip", client=client, skip=paths)
            answers = make_answers(action, ids, label, self._pool, self._marks)
            if not replace:
                check_conflicts(answers, client, seen, self._history, self._pool)
            facts: dict[str, Any] = {}
            if action == "audit":
                facts = {
                    "labels": self._pool.labels_digest,
                    "predicted": {path: self._marks.predicted_name(path) for path in answers},
                }
            return self._store(action, client=client, answers=answers, unskip=answers, facts=facts)

    def undo(self, *, client: str = "", to: int | None = None) -> dict[str, Any]:
        """Take back the last action, or restore the state after an entry."""
        with self._lock:
            entry = self._history.undo(client=client, to=to)
            self._follow(entry)
            return {"entry": entry.n, "ids": touched_items(entry, self._pool)}

    def change_class(
        self, action: str, name: str, to: str = "", *, client: str = ""
    ) -> dict[str, Any]:
        """Add a class (``add``), rename it (``rename``), or merge it into another (``merge``)."""
        with self._lock:
            if self._pool.has_fixed_classes:
                raise InvalidArgumentError(
                    "the classes of a run with a prior, or with classes given by their names, "
                    "cannot be changed; label the images again."
                )
            name, to, classes = strip_name(name), strip_name(to), self._marks.classes
            if action == "add":
                check_new_class(name, classes)
                return self._store("add", client=client, facts={"name": name})
            if action not in ("rename", "merge"):
                raise InvalidArgumentError(f"action must be add, rename or merge; got '{action}'.")
            check_class(name, classes)
            (check_new_class if action == "rename" else check_class)(to, classes)
            if name == to:
                raise InvalidArgumentError("to must be another class.")
            answers = self._marks.relabel(name, to)
            facts = {"name": name, "to": to}
            return self._store(action, client=client, answers=answers, facts=facts)

    def next_audit(self, n: int = 8) -> dict[str, Any]:
        """Return the next photos of the audit, without anything about their labels."""
        with self._lock:
            answered, found = self._marks.answered, list[int]()
            for number in self._pool.audit_order:
                if not answered[number]:
                    found.append(number)
                    if len(found) == n:
                        break
            n_audited = len(self._history.audited())
            return {"id": found[0] if found else None, "n_audited": n_audited, "next": found[1:]}

    def set_goal(self, goal: float, *, client: str = "") -> dict[str, Any]:
        """Set the accuracy that the person wants."""
        checks.between("goal", goal, 0.5, 1)
        with self._lock:
            return self._store("goal", client=client, facts={"goal": goal})

    def enough(self) -> dict[str, Any]:
        """Return what is known about the accuracy, and what the goal still takes."""
        with self._lock:
            found = self._assess()
            return {**found.as_dict(), "n_answered": self._marks.n_answered}

    def finish(self, exports: Sequence[str], *, client: str = "") -> None:
        """Write labels, exports and the statement of accuracy; an event follows."""
        for name in exports:
            if name not in EXPORTS:
                raise InvalidArgumentError(checks.unknown_name("export", name, EXPORTS))

        def prepare() -> dict[str, Any]:
            with self._lock:
                time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                statement = Statement.make(self._assess(), time).as_dict()
                facts = {"statement": statement, "exports": list(exports)}
                self._store("finish", client=client, facts=facts)
            return {"statement": statement, "export": list(exports)}

        self._loop.finish(prepare, partial(self._publisher.publish, "finished"))

    def image_file(self, number: int) -> tuple[Path, str] | None:
        """Return the file of an item and its sha256; ``None`` if it cannot be read."""
        with self._lock:
            self._check_ids([number])
            digest = self._pool.digests[number]
            return (self._pool.files[number], digest) if digest else None

    def subscribe(self, since: int) -> Subscription:
        """Return the events from now on, after the entries that a page has missed."""
        with self._lock:
            later = [entry for entry in self._history.entries if entry.n > since]
            missed = [announce_entry(entry, self._pool) for entry in later]
            return self._publisher.subscribe(missed)

    def close(self) -> None:
        """Stop all computations, and close the log."""
        self._explorer.close()
        self._loop.close()
        with self._lock:
            self._publisher.close()
            self._history.close()
        self._scratch.cleanup()

    def _store(
        self,
        action: str,
        *,
        client: str,
        answers: Mapping[str, Answer | None] | None = None,
        skip: Sequence[str] = (),
        unskip: Sequence[str] | Mapping[str, Any] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        history = self._history
        answered = answers is not None and any(
            history.answers.get(p) != answers[p] for p in answers
        )
        moved = not history.skipped.issuperset(skip) or not history.skipped.isdisjoint(unskip)
        if action in ANSWERS and not (answered or moved):  # as before: nothing to undo
            return {"entry": history.n_entries, "n_changed": 0}
        entry = history.record(
            action, client=client, answers=answers, skip=skip, unskip=unskip, facts=facts
        )
        self._follow(entry)
        return {"entry": entry.n, "n_changed": len(entry.changes)}

    def _follow(self, entry: Entry) -> None:
        """Update everything that depends on the log."""
        self._marks.update(entry)
        self._publisher.publish(*announce_entry(entry, self._pool))
        if entry.action != "audit" and entry.changes:
            self._loop.touch()
        if entry.action in ("audit", "goal", "undo"):
            self._publisher.publish("enough", self.enough())

    def _check_ids(self, ids: Sequence[int]) -> None:
        for number in ids:
            if not 0 <= number < self._pool.n_items:
                raise InvalidArgumentError(f"there is no item {number}.")

    def _assess(self) -> Assessment:
        """Say what the audit promises about the labels as they are."""
        pool, audited = self._pool, self._history.audited()
        audited = {path: answer for path, answer in audited.items() if path in pool.number_of}
        versions = [answer.labels for answer in audited.values()]
        return assess(
            self._marks.make_audit(audited, Round.find(versions)),
            self._history.goal,
            held_out=pool.estimate,
            changed=bool(versions) and versions[-1] != pool.labels_digest,
        )

    def _statement(self) -> dict[str, Any] | None:
        facts = self._pool.facts
        return facts["review"].get("statement") if "review" in facts else None

    def _has_pending(self) -> bool:
        """Whether the log has answers that the labels do not contain."""
        solved = self._pool.n_entries
        return any(entry.n > solved and entry.changes for entry in self._history.entries)

    def _take_run(self, suggested: Sequence[int] | None) -> int:
        """Read the run again, after a solve or a change by another command."""
        pool = read_pool(self.run)
        with self._lock:
            same = pool.paths == self._pool.paths
            before = self._marks
            self._pool = pool
            if suggested is None:  # with the lock, so that no answer comes in between
                self._history.answers = dict(read_corrections(self.run, pool.facts).answers)
            self._marks = Marks(pool, self._history, suggested or before.suggested)
            if not same:
                self._explorer.forget()
                self._publisher.publish("reload", {})
                return 0
            n_changed = self._marks.mark_changes(before)
            self._publisher.publish("enough", self.enough())
            return n_changed

    def _tell_solve(self, state: SolveState) -> None:
        self._publisher.publish("solve", state.to_json())

    def _take_suggestions(self, suggested: Sequence[int]) -> None:
        with self._lock:
            self._marks.suggested = self._marks.suggested or suggested
        self._tell_solve(self._loop.state)

    def _tell_found(self, kind: str) -> None:
        found = self._explorer.map
        self._publisher.publish(kind, {"projection": found[0]} if kind == "map" and found else {})
