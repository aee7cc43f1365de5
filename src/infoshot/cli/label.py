"""``infoshot label``: examples and a pile of photos in, labels out."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli import image_options as given
from infoshot.cli.label_request import label_request, print_finished, watched
from infoshot.core import checks
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.memory import keep_freed_memory
from infoshot.labelling.api import Workplace, add_corrections, default_cache, label_folder
from infoshot.labelling.exports import EXPORTS

_BACKBONE, _THRESHOLD = "efficientnet-lite0", 0.5


def label(
    examples: Annotated[
        Path,
        typer.Argument(
            help="Folder with a folder per class, or CSV path,label; with --add: "
            "the folder of a finished run."
        ),
    ],
    photos: Annotated[
        Path | None, typer.Argument(help="Any tree of images, a CSV with path, or a text list.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    add: Annotated[
        Path | None, typer.Option(help="CSV path,label: take these labels into a finished run.")
    ] = None,
    backbone: Annotated[
        str,
        typer.Option(
            help="efficientnet-lite0, folder of a checkpoint, hf:ID, timm:NAME, onnx:FILE."
        ),
    ] = _BACKBONE,
    method: Annotated[
        str | None, typer.Option(help="See 'infoshot methods'; default: tim-auto.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: temperature=10.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Confidence below which it is unsure.")
    ] = _THRESHOLD,
    reject_outliers: Annotated[
        bool, typer.Option("--reject-outliers", help="No label for photos unlike every class.")
    ] = False,
    prior: Annotated[
        str | None, typer.Option(help="How frequent classes are: a=0.7,b=0.3, or a JSON file.")
    ] = None,
    export: Annotated[
        list[str] | None, typer.Option(help=f"Also as {', '.join(EXPORTS)}; may be repeated.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept; default: the user's cache.")
    ] = None,
    device: given.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another run in --out.")] = False,
) -> None:
    """Label a pile of images from a few examples per class; no training, no GPU needed.

    Writes labels.csv, labels.parquet, report.html, classifier.safetensors and run.json. The same
    command again goes on where it stopped, and takes seconds when the images are known.

    Example: infoshot label examples/ photos/ --out run/

    Corrections: infoshot label --add corrections.csv run/
    """
    for name in export or []:
        if name not in EXPORTS:
            raise InvalidArgumentError(checks.unknown_name("export", name, EXPORTS))
    keep_freed_memory()
    where, exports = given.device_or_default(device), tuple(export or ())
    with watched() as watcher:
        if add is not None:
            asked = (photos, out, method, settings, prior, cache, force, reject_outliers)
            if any(asked) or threshold != _THRESHOLD or backbone != _BACKBONE:
                raise InvalidArgumentError(
                    "--add solves a finished run again as it was asked for: give its folder, and "
                    "no options but --export and --device."
                )
            out = examples
            done = add_corrections(out, add, device=where, exports=exports, watcher=watcher)
        else:
            if photos is None or out is None:
                raise InvalidArgumentError("give examples, photos and --out; see --help.")
            request = label_request(
                examples,
                photos,
                backbone=backbone,
                method=method,
                settings=settings or [],
                threshold=threshold,
                reject_outliers=reject_outliers,
                prior=prior,
            )
            place = Workplace(
                out=out, cache=cache or default_cache(), device=where, exports=exports
            )
            done = label_folder(request, place, force=force, watcher=watcher)
    print_finished(done, out)
