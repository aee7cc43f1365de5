"""Which answers and names of classes are allowed, and what an action answers."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.label_names import NONE, GivenLabel, collect_labels
from infoshot.labelling.answer_log import Answer
from infoshot.reviewing.history import History
from infoshot.reviewing.marks import Marks
from infoshot.reviewing.pool import Pool

_LONGEST_NAME = 200  # characters of a new class
_ACTIONS = ("label", "accept", "reject", "clear", "audit")


class Conflict(InvalidArgumentError):  # noqa: N818 - it is no fault
    """Another page has answered some of these items differently in the meantime."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        n = len(items)
        subject = "This photo was" if n == 1 else f"{n} of these photos were"
        super().__init__(f"{subject} answered differently by another page in the meantime.")
        self.items = items


def check_class(name: str, classes: Collection[str]) -> None:
    """Raise ``InvalidArgumentError`` if there is no such class."""
    if name not in classes:
        raise InvalidArgumentError(checks.unknown_name("class", name[:_LONGEST_NAME], classes))


def check_new_class(name: str, classes: Collection[str]) -> None:
    """Raise an error if a class cannot have this name, or one with a name like it exists."""
    if not name or len(name) > _LONGEST_NAME or name == NONE:
        raise InvalidArgumentError(
            f"a class needs a name of 1 to {_LONGEST_NAME} characters, other than '{NONE}'."
        )
    if name in classes:
        raise InvalidArgumentError(f"the class '{name}' exists already.")
    collect_labels("the new class", [GivenLabel("", name, "typed")], classes)


def make_answers(
    action: str, ids: Sequence[int], label: str, pool: Pool, marks: Marks
) -> dict[str, Answer | None]:
    """Return what an action answers, by path; photos with the same content get the same answer.

    Raises
    ------
    InvalidArgumentError
        If the action or the class is unknown, or no item can be answered so.
    """
    if action not in _ACTIONS:
        raise InvalidArgumentError(
            f"action must be one of {', '.join(_ACTIONS)}, skip; got '{action:.40}'."
        )
    if action in ("label", "audit") or (action == "accept" and label):
        check_class(label, [*marks.classes, NONE] if action == "audit" else marks.classes)
    if action == "audit" and label not in (NONE, *marks.classes_with_examples):
        raise InvalidArgumentError(
            f"the class '{label}' has no photo yet: label one outside of the audit first."
        )
    given = Answer(NONE) if action == "reject" else Answer(label, audit=action == "audit")
    found: dict[str, Answer | None] = {}
    for number in pool.with_copies(ids):
        path = pool.paths[number]
        if action == "clear":
            found[path] = None
        elif action == "accept" and (own := marks.offered(number)):
            found[path] = Answer(label or own)
        elif action != "accept" and pool.can_answer(number):
            found[path] = given
    if not found:
        raise InvalidArgumentError("none of these photos can be answered in this way.")
    return found


def check_conflicts(
    answers: Mapping[str, Answer | None], client: str, seen: int, history: History, pool: Pool
) -> None:
    """Raise :class:`Conflict` if another page has answered differently after an entry."""
    later = {path for path in answers if history.entry_of.get(path, 0) > seen}
    if not later:
        return
    others = {
        change.path
        for entry in history.entries
        if entry.n > seen and entry.client != client
        for change in entry.changes
    }
    items = []
    for path in later & others:
        now, wanted = history.answers.get(path), answers[path]
        if now is not None and (wanted is None or now.label != wanted.label):
            items.append({"id": pool.number_of[path], "answer": now.label})
    if items:
        raise Conflict(sorted(items, key=lambda item: item["id"]))
