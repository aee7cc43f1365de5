"""``infoshot label``: examples and unlabelled images in, labels out."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from infoshot import labelling
from infoshot.cli import _options as given
from infoshot.cli._console import complain, count_statuses, print_table, stdout
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.memory import keep_freed_memory
from infoshot.labelling import LabelResult
from infoshot.labelling.api import DEFAULT_BACKBONE, DEFAULT_THRESHOLD
from infoshot.labelling.exports import EXPORTS
from infoshot.labelling.text_prototypes import DEFAULT_WEIGHT


def label(
    examples: Annotated[
        Path,
        typer.Argument(
            help="Folder with one folder per class, or CSV file path,label. With --add: the folder "
            "of a finished run. With --classes it may be left out."
        ),
    ],
    photos: Annotated[
        Path | None,
        typer.Argument(help="Folder tree of images, CSV file with a column path, or text file."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    add: Annotated[
        Path | None, typer.Option(help="CSV file path,label: add these labels to a finished run.")
    ] = None,
    classes: Annotated[
        Path | None, typer.Option(help="Text file, one class per line: names count as examples.")
    ] = None,
    text_weight: Annotated[int, typer.Option(help="Examples a name counts as.")] = DEFAULT_WEIGHT,
    backbone: given.Backbone = DEFAULT_BACKBONE,
    method: Annotated[
        str | None,
        typer.Option(help="See 'infoshot methods', or package.module:Name; default: tim-auto."),
    ] = None,
    settings: given.Settings = None,
    threshold: Annotated[
        float, typer.Option(help="Confidence below which a label is unsure.")
    ] = DEFAULT_THRESHOLD,
    coverage: Annotated[
        float | None,
        typer.Option(help="Also write sets of classes; this share contains the right one: 0.9."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Label what can be expected to be correct at this rate: 0.95."),
    ] = None,
    reject_outliers: Annotated[
        bool,
        typer.Option("--reject-outliers", help="No label for photos unlike all examples."),
    ] = False,
    prior: Annotated[
        str | None, typer.Option(help="Expected class shares: a=0.7,b=0.3, or a JSON file.")
    ] = None,
    export: Annotated[
        list[str] | None, typer.Option(help=f"Also write {', '.join(EXPORTS)}; may be repeated.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of cached features; default: the user's cache.")
    ] = None,
    device: given.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another run in --out.")] = False,
    csv_safe: given.CsvSafe = False,
) -> None:
    """Label images from a few examples per class; no training, no GPU needed.

    Writes labels.csv, labels.parquet, report.html, classifier.safetensors and run.json. Rerun the
    command to resume; it takes seconds if the features of all images are cached.

    Example: infoshot label examples/ photos/ --out run/

    Corrections: infoshot label --add corrections.csv run/

    Names: infoshot label --classes classes.txt photos/ --backbone clip-vit-b32 --out run/
    """
    keep_freed_memory()
    if add is not None:
        others = (photos, out, method, settings, prior, cache, force, reject_outliers, classes)
        changed = (coverage, target, text_weight, threshold, backbone)
        defaults = (None, None, DEFAULT_WEIGHT, DEFAULT_THRESHOLD, DEFAULT_BACKBONE)
        if any(others) or changed != defaults:
            raise InvalidArgumentError(
                "--add repeats a finished run with its own options: give the folder of the run, "
                "and no options except --export, --device and --csv-safe."
            )
        result = labelling.add_labels(
            examples, add, export=export or (), device=device, csv_safe=csv_safe, progress=True
        )
    else:
        own, photos = (None, examples) if classes and not photos else (examples, photos)
        if photos is None or out is None:
            raise InvalidArgumentError("examples, photos and --out are needed; see --help.")
        result = labelling.label(
            own,
            photos,
            out,
            classes=classes,
            text_weight=text_weight,
            backbone=backbone,
            method=method,
            settings=given.parse_settings(settings) if settings else None,
            threshold=threshold,
            coverage=coverage,
            target=target,
            reject_outliers=reject_outliers,
            prior=given.parse_prior(prior) if prior else None,
            export=export or (),
            cache=cache,
            device=device,
            force=force,
            csv_safe=csv_safe,
            progress=True,
        )
    _print(result)


def _print(result: LabelResult) -> None:
    counts = Counter(image.label for image in result.images if image.label)
    print_table(["class", "photos"], [[name, f"{counts[name]:,}"] for name in result.classes])
    for sentence in result.warnings:
        complain("Warning", sentence)
    console = stdout()
    speed = f" ({result.images_per_second:,.0f} images/s)" if result.images_per_second else ""
    n_photos = len(result.images)
    noun = "photo" if n_photos == 1 else "photos"
    console.print(f"{n_photos:,} {noun}{speed}: {count_statuses(result.images)}.", soft_wrap=True)
    if result.estimate:
        estimate = result.estimate
        console.print(
            f"Estimated accuracy: {estimate.accuracy:.0%} (95% interval {estimate.low:.0%} to "
            f"{estimate.high:.0%}), by {estimate.n_examples} held-out examples.",
            soft_wrap=True,
        )
    if result.target and result.target.n_images:
        console.print(result.target.text(), soft_wrap=True)
    if result.prediction_sets and result.prediction_sets.enough:
        console.print(result.prediction_sets.text(), soft_wrap=True)
    for name in result.exports:
        console.print(f"Exported: {result.folder / name}", soft_wrap=True)
    console.print(f"Report: {result.report_path}; labels: {result.labels_path}", soft_wrap=True)
    console.print(f"Correct labels in the browser: infoshot review {result.folder}", soft_wrap=True)
