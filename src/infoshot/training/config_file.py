"""Training settings from a TOML file, options and single settings, and back to TOML."""

import json
import os
import tomllib
from collections.abc import Mapping
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
        values |= read_config(Path(config))
    values |= {name: value for name, value in (options or {}).items() if value is not None}
    for name in settings or {}:
        if name not in SETTINGS:
            raise InvalidArgumentError(unknown_name("training setting", name, SETTINGS))
    values |= settings or {}
    for name in _LISTS:
        if name in values:
            value = values[name]
            values[name] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    resolved = TrainConfig(**{**values, "backbone": backbone})
    resolved.validate()
    return resolved


def read_config(path: Path) -> dict[str, Any]:
    """Read the fields of ``TrainConfig`` that a TOML file sets.

    Raises
    ------
    DataError
        If the file cannot be read, is not TOML, or sets an unknown field.
    """
    try:
        values = tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path}: not a TOML file ({error}).") from error
    known = (*SETTINGS, "backbone")
    for name in values:
        if name not in known:
            raise DataError(f"{path}: {unknown_name('training setting', name, known)}")
    return values


def write_config(path: Path, config: RunConfig) -> None:
    """Write all settings to a TOML file that :func:`read_config` reads, unless it has them."""
    # JSON's numbers, booleans, strings and lists are also TOML's.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in config.to_json().items()
    ]
    text = "".join(lines)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_atomically(path, text)
