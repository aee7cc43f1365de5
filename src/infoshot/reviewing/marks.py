"""What the answers of a person say about every item, as arrays that each entry updates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from infoshot.core.label_names import NONE
from infoshot.labelling.answer_log import Answer, Entry
from infoshot.reviewing.audit import Audit, Round
from infoshot.reviewing.history import Audited, History
from infoshot.reviewing.pool import Pool, example_label


class Marks:
    """Labels and marks of all items; arrays have a row per item.

    Parameters
    ----------
    pool, history
        The items, and the answers of the person.
    suggested
        Photos in the order of active learning; empty if not computed yet.

    Attributes
    ----------
    labels
        The label that an item has now; empty if none.
    answered, rejected, audited, skipped, changed
        Whether a person answered it, said that it belongs to no class, answered it in the audit,
        set it aside, and whether the last solve changed its label.
    entries
        The last entry of the log that changed it; 0 for none.
    classes
        All classes, also those without an item.
    """

    def __init__(self, pool: Pool, history: History, suggested: Sequence[int] = ()) -> None:
        self._pool, self._history = pool, history
        self.suggested = suggested
        n = pool.n_items
        self.labels = np.full(n, "", dtype=object)
        self.answered, self.rejected = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self.audited, self.skipped = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self.changed = np.zeros(n, dtype=bool)
        self.entries = np.zeros(n, dtype=np.int64)
        self._renew()

    @property
    def n_answered(self) -> int:
        """How many photos a person has answered."""
        return int(self.answered[: self._pool.n_photos].sum())

    @property
    def classes_with_examples(self) -> list[str]:
        """The classes that the solver knows or will know: those with an example, or with a text."""
        n = self._pool.n_photos
        learned = self.labels[:n][self.answered[:n] & ~self.audited[:n]]
        named = self._pool.facts["request"].get("classes") or ()
        found = {*self.labels[n:].tolist(), *learned.tolist(), *named}
        return [name for name in self.classes if name in found]

    def answer(self, number: int) -> Answer | None:
        """Return the answer of a person to an item."""
        return self._history.answers.get(self._pool.paths[number])

    def update(self, entry: Entry) -> None:
        """Follow an entry of the log."""
        if self._find_renamed() != self._renamed:
            self._renew()
            return
        paths = {change.path for change in entry.changes}
        self._renew_items(self._numbers(paths | {*entry.skipped, *entry.unskipped}))
        if entry.action in ("add", "undo"):
            self._renew_classes()

    def offered(self, number: int) -> str:
        """Return the label that a person can confirm; empty if there is none."""
        pool = self._pool
        if number >= pool.n_photos:
            return example_label(pool.examples[number - pool.n_photos])
        name = pool.name_of(number)
        return self._renamed.get(name, name)

    def predicted_name(self, path: str) -> str:
        """Return the solver's label of a photo; empty if it has none."""
        number = self._pool.number_of[path]
        return self.offered(number) if number < self._pool.n_photos else ""

    def mark_changes(self, before: "Marks") -> int:
        """Mark the photos whose label differs from before, though nobody answered them."""
        n = self._pool.n_photos
        self.changed[:n] = (self.labels[:n] != before.labels[:n]) & ~self.answered[:n]
        return int(self.changed.sum())

    def relabel(self, name: str, to: str) -> dict[str, Answer | None]:
        """Return new answers for everything that a person labelled as one class: another class."""
        answers: dict[str, Answer | None] = {
            path: Answer(to, answer.audit)
            for path, answer in self._history.answers.items()
            if answer.label == name
        }
        pool = self._pool
        for example in pool.examples:
            path = example.image.path
            if path not in self._history.answers and example.label == name:
                answers[path] = Answer(to)
        return answers

    def count_classes(self) -> list[dict[str, Any]]:
        """Count the photos, answers and examples of every class."""
        n = self._pool.n_photos
        photos = Counter(self.labels[:n].tolist())
        answered = Counter(self.labels[:n][self.answered[:n]].tolist())
        examples = Counter(self.labels[n:].tolist())
        return [
            {
                "name": name,
                "n": photos[name],
                "n_answered": answered[name],
                "n_examples": examples[name],
            }
            for name in self.classes
        ]

    def describe_group(self, ids: Sequence[int]) -> dict[str, Any]:
        """Return a group with its most frequent label, and the share of its photos that have it."""
        labels = self.labels[list(ids)].tolist()
        label = max(sorted(set(labels)), key=labels.count)
        return {
            "ids": list(ids),
            "label": label,
            "agreement": labels.count(label) / len(labels),
            "n_open": int((~self.answered[list(ids)]).sum()),
        }

    def make_audit(self, audited: Mapping[str, Audited], round_: Round) -> Audit:
        """Collect what the accuracy is estimated from: all readable photos, in audit order.

        A photo that got another answer after its audit counts by what the solver said then.
        """
        pool = self._pool
        is_audited, correct = (
            np.zeros(pool.n_photos, dtype=bool),
            np.zeros(pool.n_photos, dtype=bool),
        )
        for path, answer in audited.items():
            number = pool.number_of[path]
            now = self.answer(number)
            kept = now is not None and now.audit and now.label == answer.truth
            is_audited[number] = True
            correct[number] = answer.truth == (self.offered(number) if kept else answer.predicted)
        rows = np.flatnonzero(pool.readable)
        return Audit(
            order=np.searchsorted(rows, pool.audit_order),
            audited=is_audited[rows],
            correct=correct[rows],
            answered=self.answered[rows] & ~is_audited[rows],
            confidence=pool.confidence[rows],
            round=round_,
        )

    def _renew(self) -> None:
        self._renamed = self._find_renamed()
        self._renew_items(range(self._pool.n_items))
        self._renew_classes()

    def _find_renamed(self) -> dict[str, str]:
        """Return the classes that got another name since the pool was solved."""
        return self._history.renamed(self._pool.n_entries)

    def _renew_classes(self) -> None:
        names = {*self._history.added_classes, *self.labels.tolist()}
        names |= {self._renamed.get(name, name) for name in self._pool.classes}
        self.classes = sorted(names - {""})

    def _renew_items(self, numbers: Iterable[int]) -> None:
        pool, history = self._pool, self._history
        answers, skipped, entry_of = history.answers, history.skipped, history.entry_of
        for number in numbers:
            path = pool.paths[number]
            answer = answers.get(path)
            self.answered[number] = answer is not None
            self.rejected[number] = answer is not None and answer.label == NONE
            self.audited[number] = answer is not None and answer.audit
            self.skipped[number] = path in skipped
            self.entries[number] = entry_of.get(path, 0)
            if answer is not None:
                self.labels[number] = "" if answer.label == NONE else answer.label
            elif number < pool.n_photos and pool.withheld[number]:
                self.labels[number] = ""
            else:
                self.labels[number] = self.offered(number)

    def _numbers(self, paths: Iterable[str]) -> list[int]:
        number_of = self._pool.number_of
        return [number_of[path] for path in paths if path in number_of]
