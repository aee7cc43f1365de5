"""``infoshot predict``: label new images with the classifier of a run."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from infoshot import labelling
from infoshot.cli import _options as given
from infoshot.cli import _ray_options as cluster
from infoshot.cli._console import count_statuses, print_table, stdout


def predict(
    classifier: Annotated[
        Path, typer.Argument(help="Folder of a run, or its classifier.safetensors.")
    ],
    images: Annotated[
        Path, typer.Argument(help="Folder tree of images, CSV file, or text file of paths.")
    ],
    out: Annotated[Path, typer.Option(help="CSV file for the labels.")] = Path("predictions.csv"),
    reject_outliers: Annotated[
        bool,
        typer.Option("--reject-outliers", help="No label for images unlike all examples."),
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of cached features; default: that of the run.")
    ] = None,
    device: given.Device = None,
    csv_safe: given.CsvSafe = False,
    engine: cluster.Engine = "torchrun",
    address: cluster.RayAddress = None,
    workers: cluster.Workers = None,
    cpus_per_worker: cluster.CpusPerWorker = None,
    gpus_per_worker: cluster.GpusPerWorker = None,
) -> None:
    """Label new images with the classifier of a run, each independently of the others.

    Example: infoshot predict run/classifier.safetensors new/ --out new.csv
    """
    labels = labelling.predict(
        classifier,
        images,
        out=out,
        reject_outliers=reject_outliers,
        cache=cache,
        device=device,
        csv_safe=csv_safe,
        engine=cluster.parse_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    counts = Counter(image.label for image in labels if image.label)
    print_table(["class", "images"], [[name, f"{n:,}"] for name, n in counts.most_common()])
    stdout().print(
        f"{len(labels):,} images: {count_statuses(labels)}. Labels: {out}", soft_wrap=True
    )
