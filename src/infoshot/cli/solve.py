"""``infoshot solve``: label the unlabelled rows of one feature file."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from infoshot import labelling
from infoshot.cli import _options as given
from infoshot.cli._console import print_table, stdout
from infoshot.core.embedding_column import SUFFIX
from infoshot.core.outputs import check_remote_output, write_output
from infoshot.core.places import local_files, locate
from infoshot.labelling.output_checks import check_results


def solve_file(
    features: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Feature file; label -1 marks unlabelled rows. Or Parquet: a file, a folder, a "
            "pattern, or a remote path such as s3://bucket/name.parquet; null marks them there.",
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="File for labels and confidences: CSV, or Parquet by its suffix."
        ),
    ],
    method: Annotated[
        str, typer.Option(help="See 'infoshot methods', or package.module:Name.")
    ] = "tim-auto",
    json: Annotated[Path | None, typer.Option(help="Write a summary here as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    settings: given.Settings = None,
    csv_safe: given.CsvSafe = False,
    column: given.Column = None,
    label_column: given.LabelColumn = None,
) -> None:
    """Label all unlabelled rows of one feature file from its labelled rows.

    Works on any embedded data: images, text, audio. Parquet output also has the other columns of a
    Parquet input, such as ids.

    Example: infoshot solve --features mine.npz --out labels.csv
    """
    target = locate(out)
    check_results(local_files(features), [target if isinstance(target, Path) else None, json])
    check_remote_output(features, target)
    result = labelling.label_table(
        features,
        method=method,
        settings=given.parse_settings(settings) if settings else None,
        device=device,
        dtype=dtype,
        column=column,
        label_column=label_column,
    )
    as_parquet = target.suffix == SUFFIX
    write_output(target, result.to_parquet() if as_parquet else result.to_csv(csv_safe=csv_safe))
    summary = result.summary()
    if json:
        write_output(json, json_format.dumps(summary, indent=1) + "\n")
    print_table(["class", "rows"], [[name, str(n)] for name, n in summary["classes"].items()])
    stdout().print(
        f"{summary['labelled_now']} rows labelled from {summary['labelled_before']} with "
        f"{summary['method']}, mean confidence {summary['mean_confidence']:.3f}: {out}",
        soft_wrap=True,
    )
    if summary["note"]:
        stdout().print(str(summary["note"]), soft_wrap=True)
