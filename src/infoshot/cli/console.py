"""What the commands share: the two consoles, progress, tables, and options given as text."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from infoshot.checks import unknown_name
from infoshot.errors import InvalidArgumentError
from infoshot.solvers import Method, method_by_name

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def stdout() -> Console:
    """Console for results."""
    return Console()


def complain(kind: str, sentence: str) -> None:
    """One sentence on stderr, never wrapped or coloured into pieces."""
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(
        f"{kind}: {sentence}", style="bold red" if kind == "Error" else "yellow"
    )


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Progress on stderr, shown only in a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


def print_table(header: Sequence[str], cells: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on stdout."""
    if title:
        stdout().print(title, highlight=False, soft_wrap=True)
    table = Table()
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for line in cells:
        table.add_row(*line)
    stdout().print(table)


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
            raise InvalidArgumentError(
                f"--set {setting}: none of the chosen methods ({names}) "
                + (f"is '{method_name}'." if method_name else f"has a setting '{field}'.")
            )
        for method in affected:
            changed = method.with_settings({field: _value(value)})
            chosen[chosen.index(method)] = changed
    return chosen


def _value(text: str) -> Any:  # noqa: ANN401 - a number, a list, true, false, null or a word
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
