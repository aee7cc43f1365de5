"""``infoshot methods``: what there is to choose from."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from infoshot.atomic import write_atomically
from infoshot.cli.console import print_table
from infoshot.solvers import METHODS


def list_methods(
    json: Annotated[Path | None, typer.Option(help="Write the list here as JSON.")] = None,
) -> None:
    """The methods, what each assumes about the queries, and what it costs.

    N samples, Q of them queries, K classes, features of width d. Example: infoshot methods
    """
    entries = [
        {
            "method": method.name,
            "does": method.summary,
            "assumes": method.assumes,
            "features": method.preparation,
            "cost": method.cost,
            "settings": method.solver.settings(),
        }
        for method in METHODS.values()
    ]
    if json:
        write_atomically(json, json_format.dumps(entries, indent=1) + "\n")
    columns = ["method", "does", "assumes", "features", "cost"]
    print_table(columns, [[str(entry[name]) for name in columns] for entry in entries])
