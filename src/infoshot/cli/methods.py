"""``infoshot methods``: what there is to choose from."""

import json as json_format
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from infoshot.cli._console import stdout
from infoshot.core.atomic import write_atomically
from infoshot.solvers import ASSUMPTIONS, METHODS

_PREPARATION = {
    "l2": "scaled to unit length",
    "centred-l2": "minus the mean of the base classes, then scaled to unit length",
    "power-l2": "square roots (left out where values are negative), then scaled to unit length",
}


_NEW_SAMPLES = {
    True: "can be classified afterwards (TIMClassifier)",
    False: "cannot be classified afterwards",
}


def list_methods(
    json: Annotated[Path | None, typer.Option(help="Write the list here as JSON.")] = None,
) -> None:
    """The methods: what each assumes about the queries, what it costs, its settings.

    N samples, Q of them queries, K classes, features of width d. Example: infoshot methods
    """
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
        for method in METHODS.values()
    ]
    if json:
        write_atomically(json, json_format.dumps(entries, indent=1) + "\n")
    stdout().print("Costs: N samples, Q of them queries, K classes, features of width d.\n")
    for entry in entries:
        stdout().print(_block(entry))


def _block(entry: Mapping[str, Any]) -> str:
    """A few lines on one method, readable at any width."""
    settings = ", ".join(f"{name}={value}" for name, value in entry["settings"].items())
    lines = [
        f"{entry['method']}: {entry['does']}",
        f"  assumes   {_assumptions(entry)}",
        f"  looks at  {'all queries together' if entry['transductive'] else 'each query alone'}",
        f"  new ones  {_NEW_SAMPLES[entry['classifies_new_samples']]}",
        f"  features  {_PREPARATION[entry['features']]}",
        f"  cost      {entry['cost']}",
        f"  settings  {settings}",
    ]
    return "\n".join(lines)


def _assumptions(entry: Mapping[str, Any]) -> str:
    """What a method takes for granted, by name and in words."""
    return (
        "; ".join(f"{name} ({ASSUMPTIONS[name]})" for name in entry["assumes"])
        or "nothing about the queries"
    )
