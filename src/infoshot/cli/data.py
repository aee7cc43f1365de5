"""``infoshot data inspect``: what a data set on disk holds."""

import dataclasses
import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli import _options as given
from infoshot.cli._console import print_table, stdout
from infoshot.core.outputs import write_output
from infoshot.images.inspection import Inspection, inspect_dataset
from infoshot.labelling.output_checks import check_results

_MOST_LINES = 10

data = typer.Typer(help="Data sets on disk.", no_args_is_help=True)


@data.command("inspect")
def inspect(
    dataset: given.Dataset,
    root: given.Root,
    splits: given.Splits = None,
    decode: Annotated[bool, typer.Option(help="Try to decode every image.")] = True,
    json: Annotated[Path | None, typer.Option(help="Write everything here as JSON.")] = None,
) -> None:
    """Compare a data set with the published counts, and find images that cannot be decoded.

    Example: infoshot data inspect --dataset mini-imagenet --root data/mini-imagenet
    """
    check_results([root], [json])
    inspection = inspect_dataset(dataset, root, splits=splits, decode=decode, progress=True)
    if json:
        write_output(json, json_format.dumps(dataclasses.asdict(inspection), indent=1) + "\n")
    _print(inspection, decode)


def _print(inspection: Inspection, decode: bool) -> None:
    console = stdout()
    console.print(f"Layout: {inspection.layout}")
    print_table(
        ["split", "classes", "images", "published classes", "published images"],
        [
            [
                count.split,
                str(count.classes),
                str(count.images),
                str(count.published_classes or "-"),
                str(count.published_images or "-"),
            ]
            for count in inspection.splits
        ],
    )
    for title, lines in (
        ("Missing classes", inspection.missing_classes),
        ("Classes that belong to no split", inspection.unknown_classes),
        ("Ignored files, not images by their names", inspection.ignored),
        ("Images that cannot be decoded", inspection.broken),
    ):
        if lines:
            console.print(f"{title}: {len(lines)}")
            for line in lines[:_MOST_LINES]:
                console.print(f"  {line}", soft_wrap=True)
            if len(lines) > _MOST_LINES:
                console.print(f"  ... {len(lines) - _MOST_LINES} more (--json lists all)")
    published = any(count.published_classes for count in inspection.splits)
    whole = "complete" if published else "readable; there are no published counts to compare with"
    verdict = whole if inspection.complete else "not complete, see above"
    decoded = "" if decode else " (images were not decoded)"
    console.print(f"The data set is {verdict}{decoded}.", soft_wrap=True)
