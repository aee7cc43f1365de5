"""Options that several commands share, and options that are given as text."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infoshot.core.errors import DataError, InvalidArgumentError
from infoshot.core.json_file import parse_json
from infoshot.core.regular_file import read_regular
from infoshot.core.setting_text import parse_setting

Dataset = Annotated[
    str, typer.Option(help="mini-imagenet, tiered-imagenet, cub, or folder: any class folders.")
]
Root = Annotated[
    Path, typer.Option(help="Class folders, CSV lists, tar archives of class folders, or pickles.")
]
Splits = Annotated[
    Path | None,
    typer.Option(help='JSON file: {"train": classes, "val": classes, "test": classes}.'),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, ...; default: cuda if there is a GPU.")
]
BaseDataset = Annotated[
    str | None,
    typer.Option(help="Data set the network was trained on; default: what the checkpoint records."),
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Skip images that cannot be decoded, and list them.")
]
Backbone = Annotated[
    str,
    typer.Option(
        help="efficientnet-lite0, dinov2-small, clip-vit-b32 or another name, the "
        "folder of a checkpoint, hf:ID, timm:NAME, onnx:FILE, or package.module:Name of your own."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a setting: temperature=10. May be repeated."),
]

Column = Annotated[
    str | None, typer.Option(help="Parquet: column of embeddings; default: the only float lists.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Parquet: labels; default: label, labels.")]

CsvSafe = Annotated[
    bool,
    typer.Option("--csv-safe", help="Apostrophe before CSV fields that look like formulas."),
]

# The function that draws tasks has other names for some arguments of the benchmark.
_SAMPLER = "sample_tasks: "
_OF_SAMPLER = {"n_way": "ways", "n_shot": "shots", "n_query": "queries", "n_tasks": "tasks"}


def parse_numbers(option: str, text: str) -> list[int]:
    """Parse whole numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidArgumentError(
            f"{option} must be whole numbers separated by commas; got '{text}'."
        ) from None


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse ``name=value`` texts of the option ``--set``.

    Examples
    --------
    >>> parse_settings(["temperature=10", "class_prior=0.7,0.3", "linearized=False"])
    {'temperature': 10, 'class_prior': [0.7, 0.3], 'linearized': False}
    """
    try:
        return dict(parse_setting(text) for text in texts)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"--set: {error}") from error


def parse_prior(given: str) -> dict[str, float]:
    """Read class shares from ``cat=0.7,dog=0.3`` or from a JSON file."""
    wrong = f"--prior must look like cat=0.7,dog=0.3 or name a JSON file; got '{given}'."
    is_file = os.path.isfile(given)  # noqa: PTH113 - Path raises for the shares of many classes
    try:
        if is_file:
            pairs = dict(parse_json(read_regular(given)))
        elif given.endswith(".json"):
            raise DataError(f"{given}: there is no such file.")
        else:
            pairs = dict(pair.rsplit("=", 1) for pair in given.split(","))
        shares = {str(name).strip(): float(share) for name, share in pairs.items()}
    except OSError as error:
        raise DataError(f"{given}: cannot be read ({error.strerror}).") from error
    except (ValueError, TypeError) as error:
        if is_file:
            raise DataError(f'{given}: must be JSON like {{"cat": 0.7, "dog": 0.3}}.') from error
        raise InvalidArgumentError(wrong) from error
    if not all(0 < share < float("inf") for share in shares.values()):
        raise InvalidArgumentError("--prior must give every class a share above 0.")
    return shares


def list_options(command: Any) -> dict[str, str]:  # noqa: ANN401 - a command or group of typer
    """Return the option of every argument of a command, or of the commands of a group."""
    commands = [command, *getattr(command, "commands", {}).values()]
    return {
        parameter.name: max(parameter.opts, key=len)
        for parameters in (getattr(each, "params", []) for each in commands)
        for parameter in parameters
        if parameter.opts and parameter.opts[0].startswith("-")
    }


def name_options(message: str, options: Mapping[str, str]) -> str:
    """Replace the arguments that a message of the library names by options of the command.

    Parameters
    ----------
    message
        Names arguments as ``name=value``, or starts with ``name must``.
    options
        Option of every argument.

    Examples
    --------
    >>> name_options("run: contains another run; pass force=True to replace it.",
    ...              {"force": "--force"})
    'run: contains another run; pass --force to replace it.'
    >>> name_options("sample_tasks: n_way must be at most 20; got 50.", {"ways": "--ways"})
    '--ways must be at most 20; got 50.'
    """
    for name, option in options.items():
        message = re.sub(rf"^{name}(?= must\b)", option, message)
        # Only after such a word: paths may contain "name=" as well.
        message = re.sub(rf"\b(pass|with|or|and) {name}=True\b", rf"\1 {option}", message)
        message = re.sub(rf"\b(pass|with|or|and) {name}=(?=\S)", rf"\1 {option} ", message)
    if message.startswith(_SAMPLER):
        message = message.removeprefix(_SAMPLER)
        for name, argument in _OF_SAMPLER.items():
            if argument in options:
                message = re.sub(rf"\b{name}\b", options[argument], message)
    return message
