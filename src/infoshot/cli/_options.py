"""Options that are given as text: lists of numbers, dtypes, methods with settings."""

import json
from collections.abc import Sequence
from typing import Any

import torch

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers import Method, method_by_name

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgumentError(
            f"{option} must be whole numbers separated by commas; got '{text}'."
        ) from None


def dtype_by_name(name: str) -> torch.dtype:
    """Return the dtype to solve in."""
    if name not in _DTYPES:
        raise InvalidArgumentError(unknown_name("dtype", name, _DTYPES))
    return _DTYPES[name]


def methods_with_settings(names: str, settings: Sequence[str]) -> list[Method]:
    """Methods separated by commas, with ``[method.]field=value`` settings applied.

    A setting without a method goes to every method that has the field.
    """
    chosen = [method_by_name(name.strip()) for name in names.split(",")]
    for setting in settings:
        target, equals, value = setting.partition("=")
        method_name, _, field = target.rpartition(".")
        if not equals or not field:
            raise InvalidArgumentError(
                f"--set must look like temperature=10 or tim-adm.n_steps=50; got '{setting}'."
            )
        affected = [
            method
            for method in chosen
            if method.name == method_name or (not method_name and field in method.solver.settings())
        ]
        if not affected:
            known = sorted({name for method in chosen for name in method.solver.settings()})
            raise InvalidArgumentError(
                f"--set {setting}: none of the chosen methods ({names}) "
                + (f"is '{method_name}'." if method_name else f"has a setting '{field}'; ")
                + ("" if method_name else f"known: {', '.join(known)}.")
            )
        for method in affected:
            changed = method.with_settings({field: _value(value)})
            chosen[chosen.index(method)] = changed
    return chosen


def _value(text: str) -> Any:  # noqa: ANN401 - a number, a list, true, false, null or a word
    """Read a value as JSON, also ``False``, ``None`` and lists without brackets; else as text."""
    words = {"True": "true", "False": "false", "None": "null"}
    for attempt in (words.get(text, text), f"[{text}]"):
        try:
            return json.loads(attempt)
        except json.JSONDecodeError:
            continue
    return text
