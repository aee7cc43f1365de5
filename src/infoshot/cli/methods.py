"""``infoshot methods``: list the methods."""

import json as json_format
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infoshot.cli._console import stdout
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.outputs import write_output
from infoshot.core.plugins import list_entry_points
from infoshot.core.setting_text import format_setting
from infoshot.labelling.output_checks import check_results
from infoshot.solvers import ASSUMPTIONS, ENTRY_POINTS, METHODS, Method, resolve_method
from infoshot.solvers.method import Assumption

_PREPARATION = {
    "l2": "scaled to unit length",
    "centred-l2": "centred by the mean of the base classes, then scaled to unit length",
    "whitened": "whitened by the scatter within the base classes and scaled to length 0.8, where "
    "that is known; otherwise scaled to unit length",
    "power-l2": "square roots (skipped if a value is negative), then scaled to unit length",
    "none": "as they are",
}


def list_methods(
    json: Annotated[Path | None, typer.Option(help="Write the list to this JSON file.")] = None,
) -> None:
    """List the methods: what each assumes about the queries, what it costs, its settings.

    Methods that installed packages register are listed too. Example: infoshot methods
    """
    check_results([], [json])
    entries = [
        {
            "method": method.name,
            "does": method.summary,
            "assumes": method.assumes,
            "transductive": method.transductive,
            "classifies_new_samples": method.inductive,
            "features": method.preparation,
            "cost": method.cost,
            "settings": method.solver.settings(),
        }
        for method in [*METHODS.values(), *_installed()]
    ]
    if json:
        write_output(json, json_format.dumps(entries, indent=1) + "\n")
    stdout().print(
        "Costs are multiplications: N samples, of which S support and Q queries, K classes, "
        "d features.\nA method of your own is named package.module:Name.\n"
    )
    for entry in entries:
        stdout().print(_block(entry))


def _installed() -> Iterator[Method]:
    """Methods that installed packages register; one that fails is reported and skipped."""
    for name in list_entry_points(ENTRY_POINTS):
        if name not in METHODS:
            try:
                yield resolve_method(name)
            except InvalidArgumentError as error:
                warnings.warn(str(error), stacklevel=2)


def _block(entry: Mapping[str, Any]) -> str:
    """A few lines about one method, readable at any width."""
    settings = ", ".join(
        f"{name}={format_setting(value)}" for name, value in entry["settings"].items()
    )
    together, new = entry["transductive"], entry["classifies_new_samples"]
    lines = [
        f"{entry['method']}: {entry['does']}",
        f"  assumes      {describe_assumptions(entry['assumes'])}",
        f"  queries      {'classified together' if together else 'classified independently'}",
        f"  new samples  {'yes' if new else 'no'}{', with TIMClassifier' if new else ''}",
        f"  features     {_PREPARATION[entry['features']]}",
        f"  cost         {entry['cost']}",
        f"  settings     {settings}",
    ]
    return "\n".join(lines)


def describe_assumptions(names: Sequence[Assumption]) -> str:
    """Return what a method or a system assumes, by name and as text."""
    texts = (f"{name} ({ASSUMPTIONS[name]})" for name in names)
    return "; ".join(texts) or "nothing about the queries"
