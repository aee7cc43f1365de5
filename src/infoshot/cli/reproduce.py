"""``infoshot reproduce``: the paper's tables and figure on your features, as a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from infoshot import checks
from infoshot.atomic import check_outputs, make_folder, sole_writer
from infoshot.cli.console import progress_bar, say, stdout
from infoshot.cli.reproduce_images import extracted, open_network
from infoshot.errors import InvalidArgumentError
from infoshot.features import default_features_path
from infoshot.reproduce.experiments import EXPERIMENTS
from infoshot.reproduce.extras import add_convergence, add_run_times
from infoshot.reproduce.render import write_report
from infoshot.reproduce.run import Plan, PlannedCell, plan_cells, run_cells
from infoshot.reproduce.sources import Source, read_sources
from infoshot.reproduce.store import Store
from infoshot.reproduce.whole_network import Network
from infoshot.types import FeatureTable

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
    only: Annotated[
        str | None, typer.Option(help=f"Some of {','.join(EXPERIMENTS)}. Default: all.")
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
    network = open_network(checkpoint, root, dataset[0] if dataset else None, device)
    if network and not features:
        make_folder(out)
        features = [extracted(network, out)]
    loaded = read_sources(features or [default_features_path()], dataset or [])
    planned = plan_cells(plan, loaded, network)
    make_folder(out)
    check_outputs(features or [], [out / "results.json"])
    with sole_writer(out):
        store = Store(out, [source for source, _ in loaded])
        store.read()
        _run(planned, loaded, store, network)
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


def _run(
    planned: Sequence[PlannedCell],
    loaded: Sequence[tuple[Source, FeatureTable]],
    store: Store,
    network: Network | None,
) -> None:
    """Run the cells that are missing, with a progress bar."""
    missing = [item for item in planned if not item.not_run and item.key not in store.rows]
    with progress_bar("tasks") as progress:
        bar = progress.add_task("", total=sum(item.protocol.n_tasks for item in missing))

        def begin(item: PlannedCell) -> None:
            cell = item.cell
            parts = (cell.experiment, cell.paper_method, cell.parameters, cell.loss)
            name = " ".join([*filter(None, parts), f"{cell.ways}-way"])
            progress.update(bar, description=f"{name} {cell.shots}-shot")
            if progress.disable:
                say(f"{name} {cell.shots}-shot ...")

        run_cells(
            planned,
            loaded,
            store,
            network=network,
            on_cell=begin,
            on_progress=lambda n_done: progress.advance(bar, n_done),
        )
