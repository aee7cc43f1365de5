"""Settings as text: ``temperature=10``, as on the command line and in names of variants."""

import json
from typing import Any

from infoshot.core.errors import InvalidArgumentError

_WORDS = {"True": "true", "False": "false", "None": "null"}
_LONGEST_DECIMAL = 15  # characters; a fraction such as 1/3 has more


def parse_setting(text: str) -> tuple[str, Any]:
    """Split ``name=value`` and convert the value.

    Examples
    --------
    >>> parse_setting("temperature=10"), parse_setting("class_prior=0.7,0.3")
    (('temperature', 10), ('class_prior', [0.7, 0.3]))
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name.rpartition(".")[2]:
        raise InvalidArgumentError(
            f"a setting must look like NAME=VALUE, such as temperature=10; got '{text}'."
        )
    return name, parse_value(value)


def parse_value(text: str) -> Any:  # noqa: ANN401 - a number, a list, true, false, null or text
    """Convert a value: JSON, ``True``, ``False``, ``None``, a number, or a list without brackets.

    Anything else is text.

    Examples
    --------
    >>> parse_value("5e-4"), parse_value(".5"), parse_value("False"), parse_value("cosine")
    (0.0005, 0.5, False, 'cosine')
    """
    for attempt in (_WORDS.get(text, text), f"[{text}]"):
        try:
            return json.loads(attempt)
        except json.JSONDecodeError:
            continue
    try:
        return float(text)
    except ValueError:
        return text


def format_setting(value: object) -> str:
    """Format a value for people: decimals as they are, fractions such as 1/3 with four digits.

    Examples
    --------
    >>> format_setting((1 / 3, 0.5, 5.756821e-06))
    '(0.3333, 0.5, 5.756821e-06)'
    """
    if isinstance(value, float) and len(repr(value)) > _LONGEST_DECIMAL:
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        items = ", ".join(map(format_setting, value))
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    return str(value)
