"""``infoshot audit``: a sample to check by hand, and the accuracy that the answers show."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli._console import complain, print_table, stdout
from infoshot.core import checks
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.core.errors import DataError
from infoshot.labelling.audit import audit_csv, audit_sample, audited, read_answers
from infoshot.labelling.run_folder import read_run


def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    n: Annotated[int, typer.Option("--n", help="Photos to draw.")] = 100,
    seed: Annotated[int, typer.Option(help="Another seed draws others.")] = 0,
    answers: Annotated[
        Path | None, typer.Option(help="The sheet with its column 'truth' filled in.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Sheet to write; default: audit.csv in the run.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
) -> None:
    """Draw photos at random to check by hand; with the answers, say how accurate the labels are.

    Example: infoshot audit run/ --n 100, then infoshot audit run/ --answers run/audit.csv
    """
    known = read_run(run)
    photos = known.photos
    if answers is None:
        checks.at_least("n", n, 1)
        sheet = out or run / "audit.csv"
        if out is None and sheet.exists() and _is_filled(sheet):
            raise DataError(f"{sheet}: has answers already; --answers {sheet} takes them in.")
        check_outputs([], [sheet])
        sample = audit_sample(photos, n, seed)
        write_atomically(sheet, audit_csv(sample))
        stdout().print(
            f"{len(sample)} photos to check: fill in the column 'truth' of {sheet}, then: "
            f"infoshot audit {run} --answers {sheet}",
            soft_wrap=True,
        )
        return
    check_outputs([answers], [json])
    truths = read_answers(answers)
    lines = audited(photos, truths)
    strange = sorted(set(truths.values()) - set(known.facts["classes"]))
    if strange:
        names = ", ".join(f"'{name}'" for name in strange)
        complain("Warning", f"no class of this run is called {names}; those count as wrong.")
    if json:
        rows = [
            {
                "class": line.name,
                "right": line.n_right,
                "checked": line.n_checked,
                "low": line.interval[0],
                "high": line.interval[1],
            }
            for line in lines
        ]
        write_atomically(json, json_format.dumps(rows, indent=1) + "\n")
    print_table(
        ["labelled", "checked", "right (95% interval)"],
        [[line.name, str(line.n_checked), line.words()] for line in lines],
    )


def _is_filled(sheet: Path) -> bool:
    try:
        return bool(read_answers(sheet))
    except DataError:
        return False
