"""Text that a spreadsheet program would take for a formula, in CSV files and read back from them.

A spreadsheet program runs a field that starts with ``=``, ``+``, ``-`` or ``@``, whoever gave the
file or the class that name. An apostrophe before it makes it text.
"""

import re
from collections.abc import Iterable, Sequence

_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def guard_formula(text: str) -> str:
    """Put an apostrophe before text that looks like a formula; numbers stay.

    Examples
    --------
    >>> [guard_formula(text) for text in ("=1+1", "-0.5", "cat", "'=1+1")]
    ["'=1+1", '-0.5', 'cat', "''=1+1"]
    """
    return f"'{text}" if _looks_like_formula(text) and not _NUMBER.fullmatch(text) else text


def unguard_formula(text: str) -> str:
    """Remove the apostrophe of :func:`guard_formula`.

    Examples
    --------
    >>> [unguard_formula(text) for text in ("'=1+1", "-0.5", "'cat'", "''=1+1")]
    ['=1+1', '-0.5', "'cat'", "'=1+1"]
    """
    return text[1:] if text.startswith("'") and _looks_like_formula(text) else text


def guard_rows(rows: Iterable[Sequence[str]], csv_safe: bool) -> Iterable[Sequence[str]]:
    """Guard every field of every row if ``csv_safe`` is true, else return the rows."""
    return ([guard_formula(field) for field in row] for row in rows) if csv_safe else rows


def _looks_like_formula(text: str) -> bool:
    """Whether text starts like a formula, after apostrophes that may have been put before it."""
    return text.lstrip("'").startswith(_STARTS)
