"""File names of any bytes as text and back, and text that no terminal obeys."""

import os
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoshot import DataError, InvalidArgumentError
from infoshot.core.text import check_class_name, encodable, escape_name, unescape_name, visible

PIECES = [b"\\", b"x", b"5", b"c", b"8", b"e", b"9", b"E", b"\xe9", b"\xc3\xa9", b"\xff", b"/"]


@given(st.binary().filter(lambda name: b"\0" not in name))
def test_any_name_is_text_and_can_be_restored(name):
    text = escape_name(os.fsdecode(name))
    text.encode()
    assert os.fsencode(unescape_name(text)) == name


def test_two_names_are_never_the_same_text():
    names = [b"".join(pieces) for n in range(1, 5) for pieces in product(PIECES, repeat=n)]
    texts = {escape_name(os.fsdecode(name)) for name in names}
    assert len(texts) == len(set(names))


@pytest.mark.parametrize(
    "name",
    ["Größe.jpg", r"C:\photos\x1.jpg", r"\x41.png", "two\nlines\r.png", "\x1b[31m.png", "🦊"],
)
def test_names_of_text_stay_as_they_are(name):
    assert escape_name(name) == name
    assert unescape_name(name) == name


def test_names_that_no_file_has_are_refused():
    with pytest.raises(InvalidArgumentError, match="no file can have the name"):
        escape_name("half \ud83e of a character.png")


@given(st.text(st.characters()))
def test_visible_text_controls_nothing(text):
    shown = visible(text)
    shown.encode()
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in shown)
    assert visible(shown) == shown
    encodable(text).encode()


def test_text_that_must_not_reach_a_terminal():
    assert visible("a\r\x1b[2J\x07\x9b\u202eb") == r"a\r\x1b[2J\x07\x9b\u202eb"
    assert visible(os.fsdecode(b"kaf\xe9")) == r"kaf\xe9"
    assert visible("Größe 🦊 a\u200db\n", keep="\n") == "Größe 🦊 a\u200db\n"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cat\r", r"\r"),
        ("a\nb", r"\n"),
        ("\x1b[31m", r"\x1b"),
        ("\0", r"\x00"),
        ("\ud800", r"\ud800"),
    ],
)
def test_class_names_have_no_control_characters(name, shown):
    with pytest.raises(DataError, match=r"examples: the class name .* contains the character") as e:
        check_class_name(name, "examples")
    assert f"the character '{shown}'; rename the class" in str(e.value)
    assert str(e.value) == visible(str(e.value))
    check_class_name("Größe 🦊, =1+1 [red]", "examples")
