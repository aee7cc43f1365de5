"""``infoshot reproduce``: the paper's tables and figure on your features, as a report."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli import _options as given
from infoshot.core.text import visible
from infoshot.reproduction import api
from infoshot.reproduction.paper import EXPERIMENTS


def reproduce(
    out: Annotated[
        Path,
        typer.Option(
            help="Folder of the report; an interrupted run resumes, and files can be added later."
        ),
    ],
    features: Annotated[
        list[Path] | None,
        typer.Option(
            help="Feature file; may be repeated. Files of one data set and backbone are networks "
            "trained with different seeds: tables show their mean. Stored results of files that "
            "are not given are shown. Default: the embedded file, or none if the report has "
            "results of others only."
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Data set of the features: mini-imagenet, tiered-imagenet, cub, mini-to-cub (CUB "
            "with a network trained on mini-ImageNet) or folder; once per file. Default: what the "
            "file or the checkpoint records."
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            help="Network of the features, or of a file of weights: resnet18, wrn28-10, ...; once "
            "per file. Default: what the file records."
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help=f"Some of {', '.join(EXPERIMENTS)}, separated by commas. Default: all."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="More methods for Tables 1 to 3, separated by commas: names, variants such as "
            "'tim-adm(temperature=10)', or package.module:Name of your own."
        ),
    ] = None,
    tasks: Annotated[int, typer.Option(help="Tasks per number.")] = 10_000,
    gradient_tasks: Annotated[
        int | None,
        typer.Option(
            help="Tasks per number for gradient methods. Default: 300 on a CPU, else --tasks."
        ),
    ] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            help="Network, for the rows over all its parameters: folder of a checkpoint or of a "
            "training run (its best epoch), or a PyTorch file of weights. May be repeated, each "
            "with --root. It belongs to the features that record its weights and images."
        ),
    ] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            help="Images for --checkpoint, once per network, and for --system: every folder serves "
            "all systems that were trained on its data set, and CUB those of mini-ImageNet."
        ),
    ] = None,
    systems: Annotated[
        list[Path] | None,
        typer.Option(
            "--system",
            help="Training run of a system that trains its own network; may be repeated. It is "
            "evaluated on the test images under --root, which are needed only if the report does "
            "not have its results. Runs of one system with different training shots each serve "
            "their own.",
        ),
    ] = None,
    base_root: Annotated[
        Path | None,
        typer.Option(
            help="Images that the network was trained on, for simpleshot and laplacianshot, if "
            "they are not under --root."
        ),
    ] = None,
    base_dataset: given.BaseDataset = None,
    network_tasks: Annotated[
        int,
        typer.Option(
            help="Tasks per number over the network; each takes a minute on a CPU. Also of systems "
            "that read images; those that read feature maps run as many but at least 1,000 (if "
            "--tasks allows it), those that read vectors run --tasks. Results are stored every 100 "
            "tasks or more. A stored number of fewer tasks is continued, one of more is kept: run "
            "the command again into the same folder for another number of tasks on another "
            "network."
        ),
    ] = 300,
    seed: Annotated[int, typer.Option(help="Task i depends on the seed and on i only.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
) -> None:
    """Compute every table and figure of the TIM paper, beside the published numbers.

    Writes report.html, tables.md, tables.tex, results.json, accuracies.safetensors (the correct
    queries of every task) and the figures. Rerun the command to resume an interrupted run, on any
    device; stored numbers of at least as many tasks are kept. With --checkpoint and --root the rows
    over the whole network run too; without --features everything runs on features extracted from
    these images. With --system and --root, systems that train their own network fill their rows.
    Later calls show stored results without feature files, systems, networks and images, and compute
    what is missing for those that are given. The last line says how many numbers of Tables 1 to 4
    were measured.

    Example: infoshot reproduce --features mine.safetensors --out report
    """
    result = api.reproduce(
        out,
        features=features,
        dataset=dataset,
        backbone=backbone,
        only=_names(only),
        methods=methods or (),
        tasks=tasks,
        gradient_tasks=gradient_tasks,
        checkpoint=checkpoint,
        root=root,
        systems=systems,
        base_root=base_root,
        base_dataset=base_dataset,
        network_tasks=network_tasks,
        seed=seed,
        device=device,
        progress=True,
    )
    typer.echo(visible(f"Report: {result.report}"))
    typer.echo(result.coverage.sentence)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]
