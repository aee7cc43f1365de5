"""``infoshot suggest``: the photos of a run that are worth labelling next."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from infoshot.cli._console import print_table, stdout
from infoshot.core import checks
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.core.csv_file import csv_text
from infoshot.labelling.api import known_features
from infoshot.labelling.run_folder import read_run
from infoshot.labelling.suggest import worth_labelling


def suggest(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    n: Annotated[int, typer.Option("--n", help="How many.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="CSV to write; default: suggestions.csv in the run.")
    ] = None,
) -> None:
    """List the photos whose label would help most: in doubt, and unlike each other.

    Write the right label into the column 'label' and take the file in with --add.

    Example: infoshot suggest run/ --n 20, then infoshot label --add run/suggestions.csv run/
    """
    checks.at_least("n", n, 1)
    finished = read_run(run)
    sheet = out or run / "suggestions.csv"
    check_outputs([], [sheet])
    examples, features = known_features(finished)
    probabilities = torch.tensor(finished.probabilities, dtype=torch.float32)
    photos = [finished.photos[i] for i in worth_labelling(features, probabilities, examples, n)]
    rows = [(p.path, "", p.label, p.runner_up, f"{p.confidence:.4f}") for p in photos]
    header = ("path", "label", "guess", "runner_up", "confidence")
    write_atomically(sheet, csv_text(header, rows))
    print_table(
        ["photo", "guess", "confidence", "or"],
        [[p.path, p.label, f"{p.confidence:.0%}", p.runner_up] for p in photos],
    )
    stdout().print(
        f"Fill in the column 'label' of {sheet}, then: infoshot label --add {sheet} {run}",
        soft_wrap=True,
    )
