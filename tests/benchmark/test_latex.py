"""LaTeX tables: any name is typeset as it is, checked by a reader of LaTeX's own rules."""

import dataclasses
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoshot.benchmark.latex import latex_table
from infoshot.core.types import ResultRow
from infoshot.report.page import Table
from infoshot.reproduction.table_formats import to_latex

# What LaTeX typesets for a command, a group, a formula or a plain character.
TYPESET = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^",
    r"\symbol{34}": '"', "{}": "", "{[}": "[", "{*}": "*", "$<$": "<", "$>$": ">", r"$\mid$": "|",
    r"$\pm$": "±", "$-$": "-", **{f"\\{special}": special for special in "&%$#_{}"},
}  # fmt: skip
TOKENS = re.compile("|".join([*map(re.escape, sorted(TYPESET, key=len, reverse=True)), "."]), re.S)
ROW = ResultRow(
    method="m", ways=5, shots=1, queries=15, tasks=2, seed=0, mean=50.0, ci95=1.0, macro_f1=50.0,
    seconds=1.0, per_task_ms=1.0, device="cpu", dtype="float32", features="f", regime="balanced",
    features_digest="", settings={}, environment={},
)  # fmt: skip
NAMES = [
    r"back\slash", r"\input{file}", "50% & more_#1 {x} $y$ a^b ~ <c> | d", 'quote "a"', "a--b---c",
    "[red] text", "* star", "two\nlines", "blank\n\nline", "bell\x07 escape\x1b[31m", "café ± τ",
    "learning_rate=1e-05", "shift=-1.5", "-3", "a-1", "tim-adm", "\udce9",
]  # fmt: skip


def read(tex):
    """Return the text that LaTeX typesets; fail where it would stop or do something else."""
    found = []
    assert "--" not in tex  # would become a dash
    for token in TOKENS.findall(tex):
        if token not in TYPESET:
            assert token not in '\\{}$&#_^~%<>"|[*', f"{token} in {tex}"
            assert unicodedata.category(token) not in ("Cc", "Cs"), f"{token!r} in {tex!r}"
        found.append(TYPESET.get(token, token))
    return "".join(found)


def plain(name):
    """The name on one line, with control characters as escapes."""
    shown = " ".join(name.split())
    for character, escape in (("\x07", r"\x07"), ("\x1b", r"\x1b"), ("\udce9", r"\xe9")):
        shown = shown.replace(character, escape)
    return shown


@pytest.mark.parametrize("name", NAMES)
def test_names_are_typeset_as_they_are(name):
    (line,) = latex_table([dataclasses.replace(ROW, method=name)]).splitlines()[7:-2]
    cell, _, result = line.rpartition(" & ")
    assert result == r"$\mathbf{50.00} \pm 1.00$ \\"
    assert read(cell) == plain(name)


@pytest.mark.parametrize("name", NAMES)
def test_reports_are_typeset_as_they_are(name):
    lines = to_latex(Table(["name", name], [[name, name]], name, name)).splitlines()
    assert len(lines) == 9
    caption = lines[1].removeprefix(r"\caption{").removesuffix("}")
    assert read(caption) == f"{plain(name)}. {plain(name)}"
    for number, first in ((4, "name"), (6, plain(name))):
        cells = re.split(r"(?<!\\) & ", lines[number].removesuffix(r" \\"))
        assert [read(cell) for cell in cells] == [first, plain(name)]


@pytest.mark.parametrize(
    ("text", "tex"),
    [
        ("-1.20 ± 0.30", r"$-$1.20 $\pm$ 0.30"),
        ("(-0.5)", "($-$0.5)"),
        ("\N{MINUS SIGN}2", "$-$2"),
        ("5-way 1-shot", "5-way 1-shot"),
        ("1e-05", "1e$-$05"),
    ],
)
def test_negative_numbers_have_a_minus_sign(text, tex):
    assert rf"x & {tex} \\" in to_latex(Table(["", ""], [["x", text]]))


def test_a_note_stays_in_its_comment():
    text = latex_table([dataclasses.replace(ROW, note="first\n\\input{second}\r\\third")])
    assert r"% first \input{second} \third" in text.splitlines()


@given(st.text(st.characters(exclude_characters="-\N{MINUS SIGN}"), max_size=20))
def test_any_name_is_typeset(name):
    lines = latex_table([dataclasses.replace(ROW, method=name)]).splitlines()
    read(lines[7].rpartition(" & ")[0])
