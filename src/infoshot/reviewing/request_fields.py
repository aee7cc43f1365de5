"""What requests of the page hold: bodies and queries, parsed and checked.

All errors are ``InvalidArgumentError`` with one sentence.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, TypeVar, cast

from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.json_file import check_json, parse_json
from infoshot.reviewing.views import ViewQuery

ACTIONS = ("label", "accept", "reject", "skip", "clear", "audit")
CLASS_ACTIONS = ("add", "rename", "merge")
_LONGEST_TEXT = 1000
_MOST_ITEMS = 500
_MOST_ENTRIES = 1000
_WHOLE = re.compile("[0-9]{1,15}", re.ASCII)
Body = TypeVar("Body")


class AnswerBody(TypedDict):
    """An action on items."""

    action: str
    ids: Any  # checked by check_numbers, which is faster for many
    label: NotRequired[str | None]
    client: NotRequired[str]
    seen: NotRequired[int]
    items: NotRequired[str]
    replace: NotRequired[bool]


class UndoBody(TypedDict):
    """Take back the last action, or all after an entry."""

    client: NotRequired[str]
    to: NotRequired[int | None]


class ClassBody(TypedDict):
    """Add, rename or merge a class."""

    action: str
    name: str
    to: NotRequired[str | None]
    client: NotRequired[str]


class GoalBody(TypedDict):
    """The accuracy that the review shall reach."""

    goal: float
    client: NotRequired[str]


class FinishBody(TypedDict):
    """The formats to export to."""

    exports: list[str]
    client: NotRequired[str]


def parse_body(content: bytes, expected: type[Body]) -> Body:
    """Parse a JSON object and check the types of its entries, which must be known."""
    try:
        body = parse_json(content)
        unknown = check_json(body, expected)
    except ValueError as error:
        raise InvalidArgumentError(f"The request is not as expected: {error}.") from error
    if unknown:
        raise InvalidArgumentError(f"The request has an unknown entry '{unknown[0]:.60}'.")
    for name, value in body.items():
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            raise InvalidArgumentError(f"{name} must have at most {_LONGEST_TEXT} characters.")
        if isinstance(value, int) and value < 0:
            raise InvalidArgumentError(f"{name} must not be negative; got {value}.")
    return cast("Body", body)


def check_numbers(ids: object, n_items: int) -> list[int]:
    """Check that a value is a list of numbers of items, at least one."""
    if not isinstance(ids, list) or not all(type(number) is int for number in ids):
        raise InvalidArgumentError("ids must be a list of whole numbers.")
    if not ids:
        raise InvalidArgumentError("ids must name at least one item.")
    for number in (min(ids), max(ids)):
        if not 0 <= number < n_items:
            raise InvalidArgumentError(f"There is no item {number}.")
    return ids


def parse_numbers(text: str, n_items: int) -> list[int]:
    """Parse numbers of items, separated by commas."""
    parts = text.split(",")
    if len(parts) > _MOST_ITEMS:
        raise InvalidArgumentError(f"ids must be at most {_MOST_ITEMS} numbers.")
    return check_numbers([_whole("ids", part) for part in parts], n_items)


def parse_item(text: str, n_items: int) -> int | None:
    """Parse the number of an item; ``None`` if there is no such item."""
    number = int(text) if _WHOLE.fullmatch(text) else n_items
    return number if number < n_items else None


def parse_size(query: Mapping[str, str], sizes: Sequence[int]) -> int:
    """Parse the size of a picture."""
    size = _whole("size", query.get("size", "160"))
    checks.one_of("size", size, sizes)
    return size


def parse_history(query: Mapping[str, str]) -> tuple[int | None, int]:
    """Parse which part of the history is asked for: the entries before one, and how many."""
    before = _whole("before", query["before"]) if query.get("before") else None
    limit = _whole("limit", query.get("limit", "100"))
    checks.at_least("limit", limit, 1, _MOST_ENTRIES)
    return before, limit


def parse_entry(text: str) -> int:
    """Parse the number of an entry of the log, after which events are asked for."""
    return _whole("since", text)


def parse_view(query: Mapping[str, str], n_items: int) -> ViewQuery:
    """Parse a view with its class, order and filters."""
    pin = query.get("pin")
    parsed = ViewQuery(
        view=query.get("view", "all"),
        label=query.get("class", ""),
        sort=query.get("sort") or "default",
        order=query.get("order", ""),
        pin=_whole("pin", pin) if pin else None,
        status=query.get("status", ""),
        low=_share("low", query.get("low") or "0"),
        high=_share("high", query.get("high") or "1"),
        text=query.get("q", ""),
    )
    if parsed.pin is not None and parsed.pin >= n_items:
        raise InvalidArgumentError(f"There is no item {parsed.pin}.")
    return parsed


def _whole(name: str, text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise InvalidArgumentError(f"{name} must be a whole number; got {text!r:.40}.")
    return int(text)


def _share(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise InvalidArgumentError(f"{name} must be a number from 0 to 1; got {text!r:.40}.")
    return value
