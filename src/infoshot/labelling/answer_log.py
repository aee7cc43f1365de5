"""The log of a review: every action of a person, one JSON line each, in the order they came.

A line is on the disk before its action counts as saved. A line without an end, which a killed
process leaves, is no action: it is ignored by readers and removed by the next writer. ``run.json``
records how many entries are contained in ``corrections.csv``; later entries are applied when the
run is solved again.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from infoshot.core.atomic import flush
from infoshot.core.errors import DataError
from infoshot.core.json_file import check_json, parse_json
from infoshot.core.regular_file import read_regular
from infoshot.core.text import visible
from infoshot.labelling.run_files import ANSWER_LOG

_LARGEST = 2**31  # bytes


@dataclass(frozen=True)
class Answer:
    """What a person says about an image.

    Parameters
    ----------
    label
        A class, or ``NONE`` if the image belongs to none of them.
    audit
        Whether it was given in a blind audit. Such an answer is never used as an example, so that
        the audit stays independent of the labels that it checks.
    """

    label: str
    audit: bool = False


@dataclass(frozen=True)
class Change:
    """The answer to an image before and after an action; ``None`` without an answer."""

    path: str
    before: Answer | None
    after: Answer | None


@dataclass(frozen=True)
class Entry:
    """One action of a person.

    Parameters
    ----------
    n
        Its number, counted from 1.
    time
        When it came, in UTC.
    action
        What it was, such as ``label`` or ``undo``.
    client
        The page that it came from.
    changes
        What it changed.
    skipped, unskipped
        Images that were set aside, and those that were taken back.
    facts
        What else belongs to the action, such as the name of a new class.
    """

    n: int
    time: str
    action: str
    client: str = ""
    changes: Sequence[Change] = ()
    skipped: Sequence[str] = ()
    unskipped: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class _Line(TypedDict):
    n: int
    time: str
    action: str
    client: str
    changes: list[list[Any]]
    skipped: NotRequired[list[str]]
    unskipped: NotRequired[list[str]]
    facts: NotRequired[dict[str, Any]]


class _Audit(TypedDict):
    labels: str
    predicted: dict[str, str]


class _Undo(TypedDict):
    to: int


class _Goal(TypedDict):
    goal: float


class _NewClass(TypedDict):
    name: str


class _OtherClass(TypedDict):
    name: str
    to: str


# What an action needs among its facts.
_FACTS: Mapping[str, type] = {
    "audit": _Audit, "undo": _Undo, "goal": _Goal, "add": _NewClass, "rename": _OtherClass,
    "merge": _OtherClass,
}  # fmt: skip


class AnswerLog:
    """The log of a run, open for writing; the caller makes sure that there is one writer.

    Parameters
    ----------
    folder
        Folder of the run.

    Raises
    ------
    DataError
        If the log cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / ANSWER_LOG
        self.entries, n_bytes = _parse(_read(self.path), self.path)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
            self._file = os.open(self.path, flags, 0o644)
            os.ftruncate(self._file, n_bytes)  # without the line that a killed process began
            os.fsync(self._file)
            flush(folder)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written to ({error.strerror}).") from error
        self._n_bytes = n_bytes

    def append(self, entry: Entry) -> None:
        """Write an entry; it is on the disk when this returns.

        Raises
        ------
        DataError
            If it cannot be written, such as on a full disk; the log is as before then.
        """
        line = _format(entry)
        try:
            _write_all(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._n_bytes)
            raise DataError(f"{self.path}: cannot be written to ({error.strerror}).") from error
        self._n_bytes += len(line)
        self.entries.append(entry)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_entries(folder: Path) -> list[Entry]:
    """Read the log of a run; no entries if there is none.

    Raises
    ------
    DataError
        If it cannot be read, or is damaged.
    """
    path = folder / ANSWER_LOG
    return _parse(_read(path), path)[0]


def apply_entries(answers: Mapping[str, Answer], entries: Iterable[Entry]) -> dict[str, Answer]:
    """Return the answers by path after some entries."""
    found = dict(answers)
    for entry in entries:
        for change in entry.changes:
            if change.after is None:
                found.pop(change.path, None)
            else:
                found[change.path] = change.after
    return found


def set_aside(folder: Path) -> None:
    """Rename the log of images that the run is no longer about; nothing is deleted."""
    path, number = folder / ANSWER_LOG, 1
    if not path.exists():
        return
    while (old := folder / f"{path.stem}-{number}{path.suffix}").exists():
        number += 1
    path.rename(old)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, _LARGEST)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error


def _parse(content: bytes, path: Path) -> tuple[list[Entry], int]:
    """Return the entries, and the number of bytes of all whole lines."""
    whole = content[: content.rfind(b"\n") + 1]
    entries: list[Entry] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            entry = _parse_line(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is damaged ({error}).") from error
        if entries and entry.n <= entries[-1].n:
            raise DataError(f"{path}: line {number} is damaged (its number is {entry.n}).")
        entries.append(entry)
    return entries, len(whole)


def _parse_line(line: bytes) -> Entry:
    record = parse_json(line)
    if unknown := check_json(record, _Line):
        raise ValueError(f"unknown entries {', '.join(unknown[:5])}")
    if record["action"] in _FACTS:
        check_json(record.get("facts", {}), _FACTS[record["action"]], "facts")
    return Entry(
        n=record["n"],
        time=record["time"],
        action=record["action"],
        client=record["client"],
        changes=[_parse_change(change) for change in record["changes"]],
        skipped=record.get("skipped", ()),
        unskipped=record.get("unskipped", ()),
        facts=record.get("facts", {}),
    )


def _parse_change(given: list[Any]) -> Change:
    if len(given) != 3 or not isinstance(given[0], str):
        raise ValueError("a change must be [path, before, after]")
    return Change(given[0], _parse_answer(given[1]), _parse_answer(given[2]))


def _parse_answer(given: object) -> Answer | None:
    if given is None:
        return None
    audit = isinstance(given, dict) and set(given) == {"audit"}
    label = given["audit"] if audit else given  # type: ignore[index] # a dict
    if not isinstance(label, str) or not label or visible(label) != label:
        raise ValueError(f"an answer must be a class; got {given!r:.60}")
    return Answer(label, audit)


def _format(entry: Entry) -> bytes:
    record: dict[str, Any] = {
        "n": entry.n,
        "time": entry.time,
        "action": entry.action,
        "client": entry.client,
        "changes": [
            [change.path, _format_answer(change.before), _format_answer(change.after)]
            for change in entry.changes
        ],
    }
    if entry.skipped:
        record["skipped"] = list(entry.skipped)
    if entry.unskipped:
        record["unskipped"] = list(entry.unskipped)
    if entry.facts:
        record["facts"] = dict(entry.facts)
    return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _format_answer(answer: Answer | None) -> object:
    if answer is None:
        return None
    return {"audit": answer.label} if answer.audit else answer.label


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
