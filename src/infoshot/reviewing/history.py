"""What a person has done in a review: answers, classes, the goal, and what was undone.

Everything follows from the log of the run. An entry has the answers before and after it, so that
the state after any entry can be restored, and undoing is an entry like every other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infoshot.core.errors import InvalidArgumentError
from infoshot.labelling.answer_log import Answer, AnswerLog, Change, Entry, apply_entries

ANSWERS = ("label", "accept", "reject", "clear", "skip", "audit")
UNDOABLE = (*ANSWERS, "add", "rename", "merge")
DEFAULT_GOAL = 0.95


@dataclass(frozen=True)
class _Done:
    """An entry that is not undone, and those before it."""

    entry: Entry
    before: "_Done | None"


@dataclass(frozen=True)
class Audited:
    """An answer of the audit: the truth, what the solver said then, and which labels it checked."""

    truth: str
    predicted: str
    labels: str


class History:
    """The log of a review, and the state that follows from it.

    Parameters
    ----------
    folder
        Folder of the run; the log in it is opened for writing.
    answers
        The answers by path at its end, also those that came in another way than by a review.
    n_entries
        The number of the last entry that the run knows of.
    """

    def __init__(self, folder: Path, answers: Mapping[str, Answer], n_entries: int) -> None:
        self._log = AnswerLog(folder)
        self.answers = dict(answers)
        self.skipped: set[str] = set()
        self.entry_of: dict[str, int] = {}
        self._states: dict[int, _Done | None] = {0: None}  # after each entry
        self._last: _Done | None = None
        self._first = max(n_entries, len(self.entries) and self.entries[-1].n)
        for entry in self.entries:
            self._note(entry)

    @property
    def entries(self) -> list[Entry]:
        """All entries, the first one first."""
        return self._log.entries

    @property
    def n_entries(self) -> int:
        """The number of the last entry."""
        return max(self._first, self.entries[-1].n if self.entries else 0)

    @property
    def done(self) -> list[Entry]:
        """The entries that are not undone."""
        found, state = [], self._last
        while state is not None:
            found.append(state.entry)
            state = state.before
        return found[::-1]

    @property
    def added_classes(self) -> list[str]:
        """Classes that were added, perhaps without an answer yet."""
        names: dict[str, None] = {}
        for entry in self.done:
            if entry.action == "add":
                names[entry.facts["name"]] = None
            elif entry.action in ("rename", "merge") and entry.facts["name"] in names:
                del names[entry.facts["name"]]
                names[entry.facts["to"]] = None
        return list(names)

    @property
    def goal(self) -> float:
        """The accuracy that the person wants."""
        goals = [entry.facts["goal"] for entry in self.entries if entry.action == "goal"]
        return float(goals[-1]) if goals else DEFAULT_GOAL

    def audited(self) -> dict[str, Audited]:
        """Return the answers of the audit by path, in the order they came."""
        found: dict[str, Audited] = {}
        for entry in self.done:
            if entry.action == "audit":
                for change in entry.changes:
                    if change.after is not None:
                        predicted = entry.facts["predicted"].get(change.path, "")
                        truth, labels = change.after.label, entry.facts["labels"]
                        found[change.path] = Audited(truth, predicted, labels)
        return found

    def renamed(self, since: int) -> dict[str, str]:
        """Return the classes that got another name after an entry, by their old name."""
        names: dict[str, str] = {}
        for entry in self.done:
            if entry.n > since and entry.action in ("rename", "merge"):
                old, new = entry.facts["name"], entry.facts["to"]
                names = {name: new if to == old else to for name, to in names.items()}
                names[old] = new
        return names

    def record(
        self,
        action: str,
        *,
        client: str = "",
        answers: Mapping[str, Answer | None] | None = None,
        skip: Iterable[str] = (),
        unskip: Iterable[str] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Write an action to the log; only then it counts.

        Parameters
        ----------
        action, client
            What was done, and by which page.
        answers
            The new answers by path; ``None`` takes an answer away.
        skip, unskip
            Images that are set aside, and those that are taken back.
        facts
            What else belongs to the action.

        Raises
        ------
        DataError
            If the log cannot be written; nothing has changed then.
        """
        entry = Entry(
            n=self.n_entries + 1,
            time=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            action=action,
            client=client,
            changes=[
                Change(path, self.answers.get(path), answer)
                for path, answer in (answers or {}).items()
                if self.answers.get(path) != answer
            ],
            skipped=[path for path in skip if path not in self.skipped],
            unskipped=[path for path in unskip if path in self.skipped],
            facts=facts or {},
        )
        self._log.append(entry)
        self.answers = apply_entries(self.answers, [entry])
        self._note(entry)
        return entry

    def undo(self, *, client: str = "", to: int | None = None) -> Entry:
        """Take back the last action that is not undone, or restore the state after an entry.

        Raises
        ------
        InvalidArgumentError
            If there is nothing to undo, or no such entry.
        """
        if to is None:
            done = self._last
            if done is None:
                raise InvalidArgumentError("there is nothing to undo.")
            to = done.entry.n - 1
        if not 0 <= to <= self.n_entries:
            raise InvalidArgumentError(f"to must be an entry from 0 to {self.n_entries}; got {to}.")
        before: dict[str, Answer | None] = {}
        aside: dict[str, bool] = {}
        for entry in self.entries:
            if entry.n <= to:
                continue
            for change in entry.changes:
                before.setdefault(change.path, change.before)
            for path in entry.skipped:
                aside.setdefault(path, False)
            for path in entry.unskipped:
                aside.setdefault(path, True)
        return self.record(
            "undo",
            client=client,
            answers=before,
            skip=[path for path, was in aside.items() if was],
            unskip=[path for path, was in aside.items() if not was],
            facts={"to": to},
        )

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def _note(self, entry: Entry) -> None:
        """Update everything but the answers."""
        self.skipped.update(entry.skipped)
        self.skipped.difference_update(entry.unskipped)
        self.entry_of.update((change.path, entry.n) for change in entry.changes)
        if entry.action == "undo":
            to = entry.facts["to"]
            self._last = self._states[max(n for n in self._states if n <= to)]
        elif entry.action in UNDOABLE:
            self._last = _Done(entry, self._last)
        self._states[entry.n] = self._last


def describe(entry: Entry) -> str:
    """Describe an action in a few words.

    Examples
    --------
    >>> describe(Entry(1, "", "label", changes=[Change("1.jpg", None, Answer("cat"))]))
    '1 photo labelled cat'
    """
    n = len(entry.changes) or len(entry.skipped)
    photos = f"{n:,} {'photo' if n == 1 else 'photos'}"
    labels = sorted({change.after.label for change in entry.changes if change.after})
    what = labels[0] if len(labels) == 1 else f"{len(labels)} classes"
    facts = entry.facts
    sentences: Mapping[str, str] = {
        "label": f"{photos} labelled {what}",
        "accept": f"{photos} confirmed as {what}",
        "reject": f"{photos} rejected as none of the classes",
        "clear": f"{photos} without an answer again",
        "skip": f"{photos} skipped",
        "audit": f"{photos} audited",
        "add": f"class {facts.get('name')} added",
        "rename": f"class {facts.get('name')} renamed to {facts.get('to')}",
        "merge": f"class {facts.get('name')} merged into {facts.get('to')}",
        "goal": f"goal set to {100 * facts.get('goal', 0):g}%",
        "finish": "review finished",
        "undo": f"back to the state after action {facts.get('to')}",
    }
    return sentences.get(entry.action, entry.action)
