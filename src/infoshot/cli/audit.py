"""``infoshot audit``: a sample to check by hand, and the accuracy that the answers show."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from infoshot import labelling
from infoshot.cli import _options as given
from infoshot.cli._console import complain, print_table, stdout
from infoshot.core.outputs import write_output
from infoshot.labelling.output_checks import check_results


def audit(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    n: Annotated[int, typer.Option("--n", help="Photos to draw.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
    answers: Annotated[
        Path | None, typer.Option(help="The sheet with its column 'truth' filled in.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Sheet to write; default: audit.csv in the run.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result here as JSON.")] = None,
    csv_safe: given.CsvSafe = False,
) -> None:
    """Draw photos at random to check by hand; with the answers, print how accurate the labels are.

    Example: infoshot audit run/ --n 100, then infoshot audit run/ --answers run/audit.csv
    """
    if answers is None:
        sample = labelling.draw_audit(run, n=n, seed=seed, out=out, csv_safe=csv_safe)
        if sample.note:
            complain("Note", sample.note)
        stdout().print(
            f"{len(sample.images)} photos to check: fill in the column 'truth' of {sample.sheet}, "
            f"then run: infoshot audit {run} --answers {sample.sheet}",
            soft_wrap=True,
        )
        return
    check_results([answers], [json])
    result = labelling.audit(run, answers)
    if result.unknown_classes:
        names = ", ".join(f"'{name}'" for name in result.unknown_classes)
        complain("Warning", f"the run has no class {names}; these answers count as errors.")
    if json:
        rows = [
            {
                "class": line.name,
                "right": line.n_correct,
                "checked": line.n_checked,
                "low": line.interval[0],
                "high": line.interval[1],
            }
            for line in result.lines
        ]
        write_output(json, json_format.dumps(rows, indent=1) + "\n")
    print_table(
        ["labelled", "checked", "correct (95% interval)"],
        [[line.name, str(line.n_checked), line.text()] for line in result.lines],
    )
    stdout().print(
        "The run is unchanged, and a review does not read these answers: it draws photos of its "
        f"own and asks without showing the label (infoshot review {run}).",
        soft_wrap=True,
    )
