"""Damage to bytes, to text, and to the values of a JSON document."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

INTEGERS = (
    -(2**63) - 1, -(2**63), -(2**31), -(10**9), -2, -1, 0, 1, 2, 3, 255, 256, 65_535, 65_536,
    10**6, 2**31 - 1, 2**31, 4_000_000_000, 2**32, 2**53, 10**12, 2**62, 2**63 - 1, 2**63, 2**64,
    10**30, 10**400,
)  # fmt: skip
FLOATS = (
    float("nan"), float("inf"), float("-inf"), -0.0, 1e-320, 1e-45, 1e39, 1e308, -1e308, 0.5, -1.0,
)  # fmt: skip
TEXTS = (
    "", " ", "\t", "\n", "\r", "\r\n", "\0", "\x1b[31mred", "\x07", "\x7f", "\x85", "\u2028",
    "\u202egnp", "\ufeff", "e\u0301", "\u00e9", "\U0001f98a", "\ud800", "\udcff", "-1", "0", "1e999",
    "nan", "inf", "None", "true", "=1+1", "=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-rf", "--help",
    "../x", "../../x", "/proc/none", ".", "..", "~", "%s%n", "%00", "${HOME}", "`id`", "$(id)", "'",
    '"', "\\", ",", ";", "|", "<script>alert(1)</script>", "{}", "[]", "a" * 300, "x" * 200_000,
    " cat", "cat ", "Cat", "cat\u00a0", "\u0441at", "nul", "os:system",
)  # fmt: skip


# Bytes -----------------------------------------------------------------------------------------


def damage(random: Random, content: bytes, other: bytes = b"") -> tuple[bytes, str]:
    """Apply one to three kinds of damage to bytes; return the bytes and what was done.

    ``other`` is a file of the same format, of which parts may be spliced in.
    """
    done = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        change = random.choice(BYTES)
        content = change(random, content, other or content)
        done.append(change.__name__.strip("_").replace("_", " "))
    return content, ", ".join(done)


def _place(random: Random, content: bytes) -> int:
    """Choose a position: often near the beginning or the end, where headers are."""
    most = max(len(content) - 1, 0)
    if random.random() < 0.4:
        return min(random.randrange(256), most)
    if random.random() < 0.2:
        return max(most - random.randrange(64), 0)
    return random.randint(0, most)


def _range(random: Random, content: bytes) -> tuple[int, int]:
    start = _place(random, content)
    length = random.choice((1, 2, 4, 8, 16, 64, 512, 4096))
    return start, min(start + random.randint(1, length), len(content))


def _flip_a_bit(random: Random, content: bytes, _: bytes) -> bytes:
    return _flip(random, content, 1)


def _flip_some_bits(random: Random, content: bytes, _: bytes) -> bytes:
    return _flip(random, content, random.choice((2, 5, 20, 100)))


def _flip(random: Random, content: bytes, n: int) -> bytes:
    changed = bytearray(content)
    for _ in range(n if changed else 0):
        changed[_place(random, content)] ^= 1 << random.randrange(8)
    return bytes(changed)


def _set_a_byte(random: Random, content: bytes, _: bytes) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[_place(random, content)] = random.choice(
            (0, 1, 9, 10, 13, 27, 32, 34, 127, 128, 255)
        )
    return bytes(changed)


def _write_an_integer(random: Random, content: bytes, _: bytes) -> bytes:
    """Write an extreme number over two, four or eight bytes."""
    size = random.choice((2, 4, 8))
    value = random.choice(INTEGERS) % 2 ** (8 * size)
    start = _place(random, content)
    number = value.to_bytes(size, random.choice(("little", "big")))
    return content[:start] + number + content[start + size :]


def _truncate(random: Random, content: bytes, _: bytes) -> bytes:
    return content[: _place(random, content)]


def _cut_the_beginning(random: Random, content: bytes, _: bytes) -> bytes:
    return content[_place(random, content) :]


def _append(random: Random, content: bytes, other: bytes) -> bytes:
    more = random.choice((random.randbytes(random.randint(1, 600)), bytes(1024), other))
    return content + more


def _delete_a_range(random: Random, content: bytes, _: bytes) -> bytes:
    start, stop = _range(random, content)
    return content[:start] + content[stop:]


def _repeat_a_range(random: Random, content: bytes, _: bytes) -> bytes:
    start, stop = _range(random, content)
    return content[:stop] + content[start:stop] * random.choice((1, 2, 50)) + content[stop:]


def _zero_a_range(random: Random, content: bytes, _: bytes) -> bytes:
    start, stop = _range(random, content)
    return content[:start] + bytes(stop - start) + content[stop:]


def _write_noise(random: Random, content: bytes, _: bytes) -> bytes:
    start, stop = _range(random, content)
    return content[:start] + random.randbytes(stop - start) + content[stop:]


def _swap_two_ranges(random: Random, content: bytes, _: bytes) -> bytes:
    (a, b), (c, d) = sorted((_range(random, content), _range(random, content)))
    if b > c:
        return content
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _splice(random: Random, content: bytes, other: bytes) -> bytes:
    start, stop = _range(random, other)
    place = _place(random, content)
    return content[:place] + other[start:stop] + content[place:]


BYTES: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    _flip_a_bit, _flip_some_bits, _set_a_byte, _write_an_integer, _truncate, _cut_the_beginning,
    _append, _delete_a_range, _repeat_a_range, _zero_a_range, _write_noise, _swap_two_ranges,
    _splice,
)  # fmt: skip


# Text ------------------------------------------------------------------------------------------


def damage_text(random: Random, text: str) -> tuple[bytes, str]:
    """Change a table of text (CSV, a list of paths) and encode it; return what was done too."""
    done = []
    for _ in range(random.choice((1, 1, 2, 3))):
        change = random.choice(TEXT)
        text = change(random, text)
        done.append(change.__name__.strip("_").replace("_", " "))
    content, how = _encode(random, text)
    if random.random() < 0.2:
        content, bytewise = damage(random, content)
        done.append(bytewise)
    return content, ", ".join([*done, how])


def _encode(random: Random, text: str) -> tuple[bytes, str]:
    usual = random.random() < 0.7
    encoding = (
        "utf-8" if usual else random.choice(("utf-8-sig", "cp1252", "utf-16", "utf-32", "utf-7"))
    )
    errors = "surrogatepass" if encoding.startswith("utf-") and encoding != "utf-7" else "replace"
    return text.encode(encoding, errors), encoding


def _insert_odd_text(random: Random, text: str) -> str:
    place = random.randint(0, len(text))
    return text[:place] + random.choice(TEXTS) + text[place:]


def _replace_a_cell(random: Random, text: str) -> str:
    lines = text.split("\n")
    number = random.randrange(len(lines))
    cells = lines[number].split(",")
    cells[random.randrange(len(cells))] = random.choice(TEXTS)
    lines[number] = ",".join(cells)
    return "\n".join(lines)


def _change_line_ends(random: Random, text: str) -> str:
    return text.replace(
        "\n", random.choice(("\r", "\r\n", "\n\n", "\x0b", "\x0c", "\x85", "\u2028"))
    )


def _change_the_delimiter(random: Random, text: str) -> str:
    return text.replace(",", random.choice((";", "\t", "|", ", ", ",,", "")))


def _drop_a_line(random: Random, text: str) -> str:
    lines = text.split("\n")
    del lines[random.choice((0, random.randrange(len(lines))))]
    return "\n".join(lines)


def _repeat_a_line(random: Random, text: str) -> str:
    lines = text.split("\n")
    number = random.randrange(len(lines))
    return "\n".join(
        lines[:number] + [lines[number]] * random.choice((2, 3, 1000)) + lines[number:]
    )


def _exchange_cells(random: Random, text: str) -> str:
    """Give one line a cell of another: two labels for one path, or one label for two."""
    lines = [line.split(",") for line in text.split("\n")]
    one, two = random.choice(lines), random.choice(lines)
    one[random.randrange(len(one))] = random.choice(two)
    return "\n".join(",".join(cells) for cells in lines)


def _quote(random: Random, text: str) -> str:
    place = random.randint(0, len(text))
    return text[:place] + random.choice(('"', '""', '"\n', "'", '\\"')) + text[place:]


def _add_a_column(random: Random, text: str) -> str:
    cell = random.choice(TEXTS)
    n = min(random.choice((1, 1, 1, 5000)), 1 + 100_000 // max(1, len(cell)))
    return "\n".join(line + f",{cell}" * n if line else line for line in text.split("\n"))


def _add_accents(random: Random, text: str) -> str:
    return text.replace(
        random.choice("acetlp"), random.choice(("\u00e9", "\u20ac", "e\u0301", "\u00df"))
    )


TEXT: tuple[Callable[[Random, str], str], ...] = (
    _insert_odd_text, _replace_a_cell, _replace_a_cell, _change_line_ends, _change_the_delimiter,
    _drop_a_line, _repeat_a_line, _exchange_cells, _quote, _add_a_column, _add_accents,
)  # fmt: skip


# JSON ------------------------------------------------------------------------------------------


def damage_json(random: Random, text: str) -> tuple[bytes, str]:
    """Change the values or the text of a JSON document; return what was done too."""
    if random.random() < 0.25:
        return damage(random, text.encode())
    if random.random() < 0.1:
        odd = (
            "[" * 100_000,
            '{"a":' * 50_000,
            "null",
            "[]",
            "{}",
            "0",
            '"text"',
            "",
            "NaN",
            "1e999",
        )
        return random.choice(odd).encode(), "another document"
    value = json.loads(text)
    done = [change_value(random, value) for _ in range(random.choice((1, 1, 2)))]
    changed = json.dumps(value, indent=random.choice((None, 1)))
    return changed.encode("utf-8", "surrogatepass"), ", ".join(done)


def change_value(random: Random, document: Any) -> str:
    """Replace, remove, rename or add one value inside a document; return what was done."""
    place, key = random.choice(list(_places(document)) or [(None, None)])
    if place is None:
        return "nothing"
    how = random.choice(("replace", "replace", "replace", "remove", "add", "rename", "exchange"))
    if how == "remove":
        del place[key]
    elif how == "add":
        _add(random, place)
    elif how == "rename" and isinstance(place, dict):
        place[random.choice((*TEXTS[:20], f"{key}2"))] = place.pop(key)
    elif how == "exchange":
        other, other_key = random.choice(list(_places(document)))
        place[key] = json.loads(json.dumps(other[other_key]))
    else:
        place[key] = odd_value(random, place[key])
    return f"{how} {str(key)[:40]!r}"


def _add(random: Random, place: Any) -> None:
    if isinstance(place, dict):
        place[random.choice(("unknown", "format", "version", ""))] = odd_value(random, "")
    else:
        place.insert(random.randint(0, len(place)), odd_value(random, ""))


def odd_value(random: Random, value: Any) -> Any:
    """Return a value to put in the place of another one, often of its type."""
    if isinstance(value, (int, float)) and random.random() < 0.5:
        return random.choice((*INTEGERS, *FLOATS))
    if isinstance(value, str) and random.random() < 0.5:
        return random.choice(TEXTS)
    if isinstance(value, list) and random.random() < 0.4:
        return random.choice(([], value * 2, value[:1], [value], [None] * 3, value[::-1]))
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    return random.choice(
        (
            None,
            True,
            False,
            [],
            {},
            [[]],
            {"a": {"b": []}},
            deep,
            [1, "a", None],
            "text",
            3,
            0.5,
            random.choice(INTEGERS),
            random.choice(FLOATS),
            random.choice(TEXTS),
        )
    )


def _places(document: Any) -> list[tuple[Any, Any]]:
    """List every (container, key) of a document."""
    found = []
    if isinstance(document, dict):
        found = [(document, key) for key in document]
    elif isinstance(document, list):
        found = [(document, number) for number in range(len(document))]
    return found + [pair for container, key in found for pair in _places(container[key])]
