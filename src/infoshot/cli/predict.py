"""``infoshot predict``: label new images with the classifier of a run."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli import image_options as given
from infoshot.cli._console import print_table, stdout
from infoshot.cli.label_request import status_counts, watched
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.labelling.api import default_cache
from infoshot.labelling.classifier import load_classifier
from infoshot.labelling.predict import label_newcomers
from infoshot.labelling.run_folder import cache_of_run, labels_csv


def predict(
    classifier: Annotated[
        Path, typer.Argument(help="Folder of a run, or its classifier.safetensors.")
    ],
    images: Annotated[Path, typer.Argument(help="Any tree of images, a CSV, or a text list.")],
    out: Annotated[Path, typer.Option(help="CSV for the labels.")] = Path("predictions.csv"),
    reject_outliers: Annotated[
        bool, typer.Option("--reject-outliers", help="No label for images unlike every class.")
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept; default: where the run has its.")
    ] = None,
    device: given.Device = None,
) -> None:
    """Label images that were not there when the pile was labelled, each by itself.

    Example: infoshot predict run/classifier.safetensors new/ --out new.csv
    """
    known = load_classifier(classifier)
    known = dataclasses.replace(known, reject_outliers=reject_outliers or known.reject_outliers)
    check_outputs([classifier, images], [out])
    with watched() as watcher:
        photos = label_newcomers(
            known,
            images,
            cache=cache or cache_of_run(classifier) or default_cache(),
            device=given.device_or_default(device),
            watcher=watcher,
        )
    write_atomically(out, labels_csv(photos))
    counts = Counter(photo.label for photo in photos if photo.label)
    print_table(["class", "images"], [[name, f"{n:,}"] for name, n in counts.most_common()])
    words = status_counts(photos)
    stdout().print(f"{len(photos):,} images: {words}. Labels: {out}", soft_wrap=True)
