"""Text that a spreadsheet program would run as a formula."""

import pytest

from infoshot.core.spreadsheet import guard_formula, unguard_formula

NAMES = ["=1+1", "+1-2", "-2+3", "@SUM(A1)", "\tx", "\rx", "\nx", "-", "\uff1dx", "'=x", "''=x"]


@pytest.mark.parametrize("name", NAMES)
def test_formulas_are_guarded_and_read_back(name):
    assert guard_formula(name) == f"'{name}"
    assert unguard_formula(guard_formula(name)) == name


@pytest.mark.parametrize("text", ["", "cat", "-0.5", "+1", "1e-3", "-1E+5", "a=b", "'cat'", "'"])
def test_numbers_and_other_text_stay(text):
    assert guard_formula(text) == text
    assert unguard_formula(text) == text
