"""``infoshot solve``: label the unlabelled rows of one feature file."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli._console import complain, print_table, stdout
from infoshot.cli._options import dtype_by_name, methods_with_settings
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.core.checks import few_queries
from infoshot.core.errors import InvalidArgumentError
from infoshot.features import read_features
from infoshot.labelling import Labelling, label_table


def solve_file(
    features: Annotated[Path, typer.Option(help="Feature file; label -1 marks the unlabelled.")],
    out: Annotated[Path, typer.Option(help="CSV file for labels and confidences.")],
    method: Annotated[str, typer.Option(help="See 'infoshot methods'.")] = "tim-auto",
    json: Annotated[Path | None, typer.Option(help="Write a summary here as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: temperature=10, class_prior=[0.7,0.3]."),
    ] = None,
) -> None:
    """Label everything unlabelled in one feature file, from the rows that have a label.

    Works on any embedded data: images, text, audio.

    Example: infoshot solve --features mine.npz --out labels.csv
    """
    chosen, *others = methods_with_settings(method, settings or [])
    if others:
        raise InvalidArgumentError(f"--method must be one method; got '{method}'.")
    check_outputs([features], [out, json])
    labelling = label_table(
        read_features(features), chosen, device=device, dtype=dtype_by_name(dtype)
    )
    warning = few_queries(len(labelling.rows), len(labelling.classes))
    if warning and chosen.expects_balance:
        complain("Warning", warning)
    write_atomically(out, labelling.to_csv())
    summary = _summary(labelling, chosen.name)
    if json:
        write_atomically(json, json_format.dumps(summary, indent=1) + "\n")
    _print(summary, out)


def _summary(labelling: Labelling, method: str) -> dict[str, object]:
    """Counts for people and machines."""
    confidence, label = labelling.probabilities.max(-1)
    counts = label.bincount(minlength=len(labelling.classes)).tolist()
    names = [labelling.table.class_name(int(number)) for number in labelling.classes]
    return {
        "method": method,
        "labelled_before": int((labelling.table.labels >= 0).sum()),
        "labelled_now": len(labelling.rows),
        "mean_confidence": float(confidence.mean()),
        "n_steps": int(labelling.solution.n_steps[0]),
        "note": labelling.solution.notes[0] if labelling.solution.notes else "",
        "classes": dict(zip(names, counts, strict=True)),
    }


def _print(summary: dict[str, object], out: Path) -> None:
    classes = summary["classes"]
    assert isinstance(classes, dict)
    print_table(["class", "rows"], [[name, str(count)] for name, count in classes.items()])
    stdout().print(
        f"{summary['labelled_now']} rows labelled from {summary['labelled_before']} with "
        f"{summary['method']}, mean confidence {summary['mean_confidence']:.3f}: {out}",
        soft_wrap=True,
    )
    if summary["note"]:
        stdout().print(str(summary["note"]), soft_wrap=True)
