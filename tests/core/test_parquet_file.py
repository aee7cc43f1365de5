"""Parquet tables of expected columns; tests/labelling/test_damaged_run.py has damaged ones."""

import math

import pytest

from infoshot.core.errors import DataError
from infoshot.core.parquet_file import format_table, parse_table, read_facts

COLUMNS = {
    "name": ["a", "b"],
    "place": [b"\xff", b""],
    "share": [0.5, math.inf],
    "shares": [[0.25, 0.75], [1.0, math.inf]],
    "other": [True, False],
}
KINDS = {"name": "text", "place": "bytes", "share": "number", "shares": "numbers"}


def test_columns_are_read_back():
    content = format_table(COLUMNS, {"made": "by hand"})
    found = parse_table(content, KINDS, n_rows=2, width=2)
    assert {name: list(map(plain, found[name])) for name in KINDS} == {n: COLUMNS[n] for n in KINDS}


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


WRONG = {
    "rows": ({"n_rows": 3}, COLUMNS, "it has 2 rows instead of 3"),
    "values": ({"width": 1}, COLUMNS, "has too many values"),
    "kind": ({}, {**COLUMNS, "name": [b"a", b"b"]}, "'name' must be string; got binary"),
    "column": ({}, {"name": ["a", "b"]}, "it must have one column 'place'"),
    "no number": ({}, {**COLUMNS, "share": [0.5, None]}, "a number is missing"),
    "no row": ({}, {**COLUMNS, "shares": [[0.5, 0.5], None]}, "a row has not 2 numbers"),
    "short row": ({}, {**COLUMNS, "shares": [[0.5, 0.5], [1.0]]}, "a row has not 2 numbers"),
    "missing": ({}, {**COLUMNS, "name": ["a", None]}, "a text is missing"),
    "long": ({}, {**COLUMNS, "name": ["a", "b" * 100_000]}, "longer than 65,536 characters"),
    "zero": ({}, {**COLUMNS, "place": [b"", b"\0"]}, "contains a zero byte"),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_tables_are_refused(case):
    sizes, columns, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        parse_table(format_table(columns, {}), KINDS, **{"n_rows": 2, "width": 2, **sizes})


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\xff" * 1000])
def test_what_is_no_table_is_refused(content):
    with pytest.raises(ValueError, match=r"[Pp]arquet"):
        parse_table(content, KINDS, n_rows=2, width=2)


def test_facts_are_read_back(tmp_path):
    (tmp_path / "a").write_bytes(format_table(COLUMNS, {"made": '{"by": "hand"}'}))
    assert read_facts(tmp_path / "a", "made") == ({"by": "hand"}, 2)
    for metadata in ({}, {"made": "{"}, {"made": "[]"}):
        (tmp_path / "a").write_bytes(format_table(COLUMNS, metadata))
        with pytest.raises(DataError, match=r"a: damaged, or not a made file \("):
            read_facts(tmp_path / "a", "made")
    (tmp_path / "a").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"a: damaged, or not a made file \(.*\)\.$"):
        read_facts(tmp_path / "a", "made")
