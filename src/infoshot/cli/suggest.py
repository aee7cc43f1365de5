"""``infoshot suggest``: the images of a run to label next."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot import labelling
from infoshot.cli import _options as given
from infoshot.cli._console import complain, print_table, stdout


def suggest(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    n: Annotated[int, typer.Option("--n", help="How many photos.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write; default: suggestions.csv in the run.")
    ] = None,
    csv_safe: given.CsvSafe = False,
) -> None:
    """List the photos whose label would help most: doubtful, and unlike each other.

    Write the correct label into the column 'label', and add the file with --add.

    Example: infoshot suggest run/ --n 20, then infoshot label --add run/suggestions.csv run/
    """
    suggestions = labelling.suggest(run, n=n, out=out, csv_safe=csv_safe)
    print_table(
        ["photo", "guess", "confidence", "runner-up"],
        [[i.path, i.label, f"{i.confidence:.0%}", i.runner_up] for i in suggestions.images],
    )
    if suggestions.note:
        complain("Note", suggestions.note)
    sheet = suggestions.sheet
    stdout().print(
        f"Fill in the column 'label' of {sheet}, then run: infoshot label --add {sheet} {run}",
        soft_wrap=True,
    )
