"""Training settings from a TOML file, options and single settings, and back to TOML."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from infoshot.core.atomic import write_atomically
from infoshot.core.checks import unknown_name
from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.regular_file import read_regular
from infoshot.training.config import TrainConfig
from infoshot.training.recipes import RECIPES
from infoshot.training.run_config import RunConfig

_LISTS = ("drops", "crop_aspect")
SETTINGS = tuple(field.name for field in fields(TrainConfig) if field.name != "backbone")


def resolve_config(
    backbone: str,
    config: TrainConfig | str | os.PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    recipe: str = "paper",
) -> TrainConfig:
    """Combine the sources of a training configuration.

    A later source replaces values of an earlier one: ``recipe``, ``config``, ``options``,
    ``settings``.

    Parameters
    ----------
    backbone
        Name of the network; replaces the one in ``config``.
    config
        A configuration, or the path of a TOML file with fields of ``TrainConfig``.
    options
        Fields by name; those that are ``None`` are ignored.
    settings
        Fields by name.
    recipe
        Name of a recipe.

    Raises
    ------
    InvalidArgumentError, DataError
        If a name is unknown, a value is not allowed, or the file cannot be read.

    Examples
    --------
    >>> resolve_config("conv4", options={"epochs": 5}, settings={"drops": [0.8]}).drops
    (0.8,)
    """
    if recipe not in RECIPES:
        raise InvalidArgumentError(unknown_name("recipe", recipe, RECIPES))
    values: dict[str, Any] = dict(RECIPES[recipe])
    if isinstance(config, TrainConfig):
        values = asdict(config)
    elif config is not None:
        values |= read_config(Path(config), SETTINGS)
    values |= combine(options, settings, SETTINGS)
    resolved = TrainConfig(**{**make_tuples(values), "backbone": backbone})
    resolved.validate()
    return resolved


def combine(
    options: Mapping[str, Any] | None,
    settings: Mapping[str, Any] | None,
    known: Sequence[str],
) -> dict[str, Any]:
    """Return the settings that options and single settings change; the latter take precedence.

    Raises
    ------
    InvalidArgumentError
        If the name of a setting is unknown.
    """
    for name in settings or {}:
        if name not in known:
            raise InvalidArgumentError(unknown_name("training setting", name, known))
    given = {name: value for name, value in (options or {}).items() if value is not None}
    return {**given, **(settings or {})}


def make_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn settings that hold several numbers into tuples; a single number needs no list."""
    return {
        name: (tuple(value) if isinstance(value, (list, tuple)) else (value,))
        if name in _LISTS
        else value
        for name, value in values.items()
    }


def read_config(path: Path, settings: Sequence[str] = SETTINGS) -> dict[str, Any]:
    """Read the settings that a TOML file has; those in tables get names such as ``head.NAME``.

    Raises
    ------
    DataError
        If the file cannot be read, is not TOML, or has another setting than the backbone and
        ``settings``.
    """
    try:
        values = tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path}: not a TOML file ({error}).") from error
    values = {name: value for table in values.items() for name, value in _flatten(*table)}
    if "system" in values and "system" not in settings:
        raise DataError(
            f"{path}: holds the settings of the system {values['system']}; pass "
            f"system={values['system']} as well."
        )
    known = (*settings, "backbone")
    for name in values:
        if name not in known:
            raise DataError(f"{path}: {unknown_name('training setting', name, known)}")
    return values


def _flatten(name: str, value: object) -> list[tuple[str, Any]]:
    """Return the entries of a table, by names with a dot; any other value as it is."""
    if not isinstance(value, dict):
        return [(name, value)]
    return [(f"{name}.{key}", inner) for key, inner in value.items()]


def write_config(path: Path, config: RunConfig) -> None:
    """Write all settings to a TOML file that :func:`read_config` reads, unless it has them."""
    # JSON's numbers, booleans, strings and lists are also TOML's, and so are names with a dot.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in config.to_json().items()
        if value is not None  # TOML has no such value; a missing setting has its default
    ]
    text = "".join(lines)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)
