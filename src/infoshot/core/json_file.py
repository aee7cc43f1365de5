"""JSON from files that anybody may have changed: parsed, and compared with the expected types."""

import json
import os
import re
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import (
    Any,
    NewType,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from infoshot.core.errors import DataError
from infoshot.version import __version__

FileText = NewType("FileText", str)
"""The text of a path, whose bytes need not be UTF-8."""
Record = TypeVar("Record")
_LARGEST = 2**63
_LONGEST = 255  # bytes of a name in a folder


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """Parse JSON; infinities and ``NaN``, which JSON does not have, are refused.

    Raises
    ------
    ValueError
        If it is not JSON, is nested too deeply, or has whole numbers of more than 64 bits.
    """
    try:
        return json.loads(
            data.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_parse_whole
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_record(
    text: bytes, path: Path, expected: type[Record], *, version: str, what: str
) -> Record:
    """Parse a JSON object that names its format, and check the types of all its entries.

    Parameters
    ----------
    text, path
        The file, and its name for messages.
    expected
        A ``TypedDict`` with an entry ``format``, and perhaps ``environment``.
    version
        What ``format`` must be.
    what
        What the file must be, for messages.

    Raises
    ------
    DataError
        If it is damaged, or was written by a newer version of this package.
    """
    wrong = f"{path}: not {what}"
    try:
        record = parse_json(text)
        if not isinstance(record, dict) or "format" not in record:
            raise ValueError("'format' is missing")
        if record["format"] != version:
            found = f"{record['format']!r:.60}"
            raise ValueError(f"{_name_writer(record)}its format is {found}, not '{version}'")
        unknown = check_json(record, expected)
    except ValueError as error:
        raise DataError(f"{wrong} ({error}).") from error
    if unknown:
        names = ", ".join(f"'{name}'" for name in unknown[:5])
        raise DataError(f"{wrong} of this version ({_name_writer(record)}unknown entries {names}).")
    return cast("Record", record)


def check_json(value: object, expected: Any, name: str = "") -> list[str]:  # noqa: ANN401 - a type
    """Compare a value that :func:`parse_json` returned with the type that it must have.

    Parameters
    ----------
    value
        The value.
    expected
        ``str``, ``FileText``, ``int``, ``float``, ``bool``, ``Any``, a ``TypedDict``, or
        ``list[X]``, ``dict[str, X]`` and ``X | None`` of these. Numbers must be finite.
    name
        The name of the value in messages.

    Returns
    -------
    Names of the entries that the expected type does not have.

    Raises
    ------
    ValueError
        If a value has another type, or an entry is missing.

    Examples
    --------
    >>> check_json({"a": [1, 2]}, dict[str, list[int]])
    []
    >>> check_json({"a": [1, "2"]}, dict[str, list[int]])
    Traceback (most recent call last):
    ...
    ValueError: 'a[1]' must be a whole number; got text
    """
    if is_typeddict(expected):
        return _check_entries(value, expected, name)
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        return _check_union(value, get_args(expected), name)
    if origin is list:
        _require(isinstance(value, list), value, "a list", name)
        items = list(value)  # type: ignore[call-overload]
        (inner,) = get_args(expected)
        return [
            extra
            for number, entry in enumerate(items)
            for extra in check_json(entry, inner, f"{name}[{number}]")
        ]
    if origin is dict:
        _require(isinstance(value, Mapping), value, "an object", name)
        inner = get_args(expected)[1]
        entries = dict(value)  # type: ignore[call-overload]
        for key in entries:
            _check_text(key, f"an entry of {name}")
        return [
            extra
            for key, entry in entries.items()
            for extra in check_json(entry, inner, _join(name, key))
        ]
    _check_plain(value, expected, name)
    return []


def _name_writer(record: Mapping[str, Any]) -> str:
    """Name the version of this package that wrote a record, if it is newer than this one."""
    environment = record.get("environment")
    writer = str(environment.get("infoshot", "")) if isinstance(environment, Mapping) else ""
    if _numbers(writer) > _numbers(__version__):
        return f"written by InfoShot {writer[:20]}, which is newer than {__version__}: "
    return ""


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]{1,9}", version)[:3]]


def _check_entries(value: object, expected: Any, name: str) -> list[str]:  # noqa: ANN401 - a type
    """Check an object whose entries have names and types."""
    _require(isinstance(value, Mapping), value, "an object", name)
    entries = dict(value)  # type: ignore[call-overload]
    hints = get_type_hints(expected)
    for key in sorted(expected.__required_keys__):
        if key not in entries:
            raise ValueError(f"'{_join(name, key)}' is missing")
    unknown = [_join(name, key) for key in entries if key not in hints]
    for key, hint in hints.items():
        if key in entries:
            unknown += check_json(entries[key], hint, _join(name, key))
    return unknown


def _check_union(value: object, expected: tuple[Any, ...], name: str) -> list[str]:
    """Check a value that may be ``None``."""
    if value is None and type(None) in expected:
        return []
    (other,) = (kind for kind in expected if kind is not type(None))
    return check_json(value, other, name)


def _check_plain(value: object, expected: Any, name: str) -> None:  # noqa: ANN401 - a type
    """Check text, a number or a truth value."""
    if expected in (str, FileText):
        _require(isinstance(value, str), value, "text", name)
        _check_text(str(value), name, "strict" if expected is str else "surrogateescape")
        if expected is FileText and any(len(part) > _LONGEST for part in _split(str(value))):
            raise ValueError(f"'{name}' is longer than a file name can be")
    elif expected is bool:
        _require(isinstance(value, bool), value, "true or false", name)
    elif expected is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
        _require(fits, value, "a whole number", name)
    elif expected is float:
        _require(_is_finite(value), value, "a finite number", name)


def _check_text(text: str, name: str, errors: str = "strict") -> None:
    """Refuse text that no file can be named and no report can show."""
    if "\0" in text:
        raise ValueError(f"'{name}' contains a zero byte")
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise ValueError(f"'{name}' is not valid Unicode") from None


def _is_finite(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def _split(text: str) -> list[bytes]:
    return os.fsencode(text).replace(b"\\", b"/").split(b"/")


def _require(fits: bool, value: object, expected: str, name: str) -> None:
    if not fits:
        raise ValueError(f"'{name or 'all'}' must be {expected}; got {_name_type(value)}")


def _name_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null"}
    return names.get(type(value)) or repr(value)[:40]


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _parse_whole(text: str) -> int:
    if len(text) > 20 or abs(int(text)) >= _LARGEST:
        raise ValueError("a whole number has more than 64 bits")
    return int(text)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")
