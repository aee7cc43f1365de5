"""JSON whose types are checked before it is used."""

from typing import NotRequired, TypedDict

import pytest

from infoshot.core.json_file import FileText, check_json, parse_json


class Inner(TypedDict):
    """An object in a list."""

    name: str
    share: NotRequired[float]


class Outer(TypedDict):
    """Everything that can be expected."""

    items: list[Inner]
    counts: dict[str, int]
    file: FileText
    maybe: float | None
    yes: bool


GOOD = {
    "items": [{"name": "a"}, {"name": "b", "share": 1}],
    "counts": {"x": 3},
    "file": "photo\udce9.png",
    "maybe": None,
    "yes": True,
}


def test_values_of_the_expected_types_are_accepted():
    assert check_json(GOOD, Outer) == []
    assert check_json({**GOOD, "maybe": 0.5}, Outer) == []


def test_unknown_entries_are_returned():
    changed = {**GOOD, "more": 1, "items": [{"name": "a", "colour": 2}]}
    assert check_json(changed, Outer) == ["more", "items[0].colour"]


WRONG = {
    "items": ([{}], "'items[0].name' is missing"),
    "counts": ({"x": True}, "'counts.x' must be a whole number; got True"),
    "file": ("a\0", "'file' contains a zero byte"),
    "maybe": ("1", "'maybe' must be a finite number; got text"),
    "yes": (None, "'yes' must be true or false; got null"),
}


@pytest.mark.parametrize("name", WRONG)
def test_values_of_other_types_are_named(name):
    value, message = WRONG[name]
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        check_json({**GOOD, name: value}, Outer)


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b"NaN", b"-Infinity", b"9" * 5000, b"\xff", b"{", b"9223372036854775808"],
)
def test_text_that_is_not_plain_json_is_refused(text):
    with pytest.raises(ValueError, match=r"\S"):
        parse_json(text)
