"""``infoshot reproduce``: the paper's tables and figure on your features, as a report."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli._console import say, stdout
from infoshot.cli.reproduce_cells import run_missing
from infoshot.cli.reproduce_images import extracted, open_network
from infoshot.core import checks
from infoshot.core.atomic import check_outputs, make_folder, sole_writer
from infoshot.core.errors import InvalidArgumentError
from infoshot.features import default_features_path
from infoshot.reproduction.experiments import EXPERIMENTS
from infoshot.reproduction.extras import add_convergence, add_run_times
from infoshot.reproduction.plan import Plan, check_images, plan_cells
from infoshot.reproduction.render import write_report
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.sources import read_sources

_ON_CPU = 300


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the report; taken up where it stopped.")],
    features: Annotated[
        list[Path] | None,
        typer.Option(help="Feature file; may be given several times. Default: the embedded one."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose features: mini-imagenet, tiered-imagenet, cub, mini-to-cub (CUB by a "
            "network of mini-ImageNet); once per file. Default: what the file says."
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(help="Whose network: resnet18, wrn28-10, ...; once per file, likewise."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help=f"Some of {', '.join(EXPERIMENTS)}. Default: all.")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Tasks per number.")] = 10_000,
    gradient_tasks: Annotated[
        int | None,
        typer.Option(help="The same for gradient methods; default: 300 on a CPU, else --tasks."),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Network, for the ablation over its parameters too.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Images for --checkpoint.")] = None,
    network_tasks: Annotated[
        int, typer.Option(help="Tasks per number over the network; a CPU takes a minute for each.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="Task i depends on the seed and on i only.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
) -> None:
    """Every table and figure of the TIM paper on your features, beside the published numbers.

    Writes report.html, tables.md, tables.tex, results.json, accuracies.safetensors (of every task)
    and the figure. The same command again goes on where it stopped. With --checkpoint and --root
    the ablation over the whole network runs too, on features of its own if none are given.

    Example: infoshot reproduce --features mine.safetensors --out report
    """
    checks.device(device)
    default_tasks = _ON_CPU if device == "cpu" else tasks
    plan = Plan(
        experiments=_experiments(only),
        n_tasks=tasks,
        n_gradient_tasks=default_tasks if gradient_tasks is None else gradient_tasks,
        n_network_tasks=network_tasks,
        seed=seed,
        device=device,
    )
    plan.validate()
    network = open_network(checkpoint, root, dataset[0] if dataset else None, device)
    paths = features or ([] if network else [default_features_path()])
    given = read_sources(paths, dataset or [], backbone or []) if paths else []
    if network:
        check_images(plan, network)
    planned = plan_cells(plan, given, network)
    make_folder(out)
    check_outputs(features or [], [out / "results.json"])
    with sole_writer(out):
        loaded = given
        if network and not given:
            loaded = read_sources([extracted(network, out)], dataset or [], backbone or [])
            planned = plan_cells(plan, loaded, network)
        store = Store(out, [source for source, _ in loaded])
        store.read()
        run_missing(planned, loaded, store, network)
        for name, add in (("table5", add_run_times), ("figure1", add_convergence)):
            if name in plan.experiments:
                say(f"{EXPERIMENTS[name]} ...")
                add(plan, store, loaded[0][1], network)
        write_report(plan, planned, store)
    stdout().print(f"Report: {out / 'report.html'}", soft_wrap=True)


def _experiments(only: str | None) -> list[str]:
    names = list(EXPERIMENTS) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in EXPERIMENTS:
            raise InvalidArgumentError(checks.unknown_name("experiment", name, EXPERIMENTS))
    return names
