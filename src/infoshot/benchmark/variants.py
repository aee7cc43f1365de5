"""Methods as a user names them: registered names, own methods, and variants with other settings.

A variant is a method with some settings changed, written ``tim-adm(temperature=10)`` as text or
``("tim-adm", {"temperature": 10})`` in Python. Results call it ``tim-adm (temperature=10)``. The
head of a trained few-shot system is named ``system:FOLDER``.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.plugins import list_entry_points
from infoshot.core.setting_text import parse_setting
from infoshot.solvers import ENTRY_POINTS, METHODS, Method, Solver, resolve_method
from infoshot.training.episodic.trained_head import PREFIX, system_method

MethodLike: TypeAlias = str | Method | Solver[Any]
MethodSpec: TypeAlias = MethodLike | tuple[MethodLike, Mapping[str, Any]]
_VARIANT = re.compile(r"(?P<method>[^()]+)\((?P<settings>.*)\)", re.DOTALL)
_OPENING, _CLOSING = "([{", ")]}"


def resolve_variants(
    methods: MethodSpec | Sequence[MethodSpec], settings: Mapping[str, Any] | None = None
) -> list[Method]:
    """Return the methods that a user asks for, variants under names that show their settings.

    Parameters
    ----------
    methods
        One entry or several: a name (also ``package.module:Name``), ``system:FOLDER`` of a trained
        system, a ``Method``, a solver, or a pair of one of these and changed settings. Text may
        hold several entries separated by commas, and variants such as
        ``tim-adm(temperature=10, n_steps=50)``; ``all`` stands for every registered method.
    settings
        Changed settings that do not show in the names: ``{"temperature": 10}`` changes every method
        that has the setting, ``{"tim-adm.n_steps": 50}`` changes one method and its variants. The
        settings of a variant take precedence.

    Raises
    ------
    InvalidArgumentError
        If a method or a setting is unknown, a value is not allowed, or two entries are equal.

    Examples
    --------
    >>> [method.name for method in resolve_variants("prototype, tim-adm(n_steps=50)")]
    ['prototype', 'tim-adm (n_steps=50)']
    """
    entries = [_parse_entry(entry) for entry in expand(methods)]
    if not entries:
        raise InvalidArgumentError("methods must name at least one method; got none.")
    chosen = _apply_settings([method for method, _ in entries], settings or {})
    variants = [
        _make_variant(method, changes) for method, (_, changes) in zip(chosen, entries, strict=True)
    ]
    names = [method.name for method in variants]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"methods must differ from each other; got '{name}' twice.")
    return variants


def expand(methods: MethodSpec | Sequence[MethodSpec]) -> list[MethodSpec]:
    """List the entries: text is split at commas, and ``all`` is replaced by the methods."""
    expanded: list[MethodSpec] = []
    is_one = isinstance(methods, (str, Method, Solver, type)) or _is_pair(methods)
    for entry in cast("Sequence[MethodSpec]", [methods] if is_one else methods):
        parts: Sequence[MethodSpec] = _split(entry) if isinstance(entry, str) else [entry]
        for part in parts:
            if isinstance(part, str) and part == "all":
                installed = list_entry_points(ENTRY_POINTS)
                expanded += [*METHODS, *(name for name in installed if name not in METHODS)]
            else:
                expanded.append(part)
    return expanded


def _parse_entry(entry: MethodSpec) -> tuple[Method, dict[str, Any]]:
    """Return the method of an entry, and the settings that its name shows."""
    if isinstance(entry, tuple):
        if not _is_pair(entry):
            raise InvalidArgumentError(
                f"methods must hold pairs of a method and a mapping of settings; got {entry!r}."
            )
        return _resolve(entry[0]), dict(entry[1])
    match = _VARIANT.fullmatch(entry) if isinstance(entry, str) else None
    if match and not _ends_a_folder(match):
        changes = dict(parse_setting(part) for part in _split(match["settings"]))
        return _resolve(match["method"].strip()), changes
    changes = _changed_fields(entry) if isinstance(entry, Solver) else {}
    return _resolve(entry), changes


def _ends_a_folder(match: re.Match[str]) -> bool:
    """Whether parentheses belong to the name of the folder of a system."""
    if not match[0].startswith(PREFIX):
        return False
    whole, start = (text.removeprefix(PREFIX) for text in (match[0], match["method"].strip()))
    # Path raises if the name is too long.
    return os.path.exists(whole) or not os.path.exists(start)  # noqa: PTH110


def _resolve(method: MethodLike) -> Method:
    """Return a method, also that of a trained system."""
    if isinstance(method, str) and method.startswith(PREFIX):
        return system_method(method.removeprefix(PREFIX))
    return resolve_method(method)


def _apply_settings(methods: Sequence[Method], settings: Mapping[str, Any]) -> list[Method]:
    """Change settings of all methods that have them."""
    chosen = list(methods)
    for target, value in settings.items():
        method_name, _, field = target.rpartition(".")
        affected = [
            number
            for number, method in enumerate(chosen)
            if method.name == method_name or (not method_name and field in method.solver.settings())
        ]
        if not affected:
            names = ", ".join(dict.fromkeys(method.name for method in chosen))
            known = sorted({name for method in chosen for name in method.solver.settings()})
            if method_name:
                raise InvalidArgumentError(f"none of the methods ({names}) is '{method_name}'.")
            if not known:
                raise InvalidArgumentError(
                    f"none of the methods ({names}) has settings that can be changed; "
                    f"got '{field}'."
                )
            raise InvalidArgumentError(
                unknown_name(f"setting of the methods ({names})", field, known)
            )
        for number in affected:
            chosen[number] = chosen[number].with_settings({field: value})
    return chosen


def _make_variant(method: Method, changes: Mapping[str, Any]) -> Method:
    """Return the method with these settings, which its name shows."""
    if not changes:
        return method
    shown = ", ".join(f"{name}={value}" for name, value in changes.items())
    changed = method.with_settings(changes)
    return dataclasses.replace(changed, name=f"{method.name} ({shown})")


def _changed_fields(solver: Solver[Any]) -> dict[str, Any]:
    """Hyperparameters of a solver that differ from the defaults of its class."""
    if not dataclasses.is_dataclass(solver):
        return {}
    return {
        field.name: getattr(solver, field.name)
        for field in dataclasses.fields(solver)
        if field.init
        and field.default is not dataclasses.MISSING
        and getattr(solver, field.name) != field.default
    }


def _is_pair(entry: object) -> bool:
    """Whether an entry is a method with settings."""
    return isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], Mapping)


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
