"""``infoshot reproduce``: the paper's tables and figure on your features, as a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from infoshot.atomic import check_outputs, make_folder, sole_writer
from infoshot.checks import device as check_device
from infoshot.checks import unknown_name
from infoshot.cli.console import progress_bar, say, stdout
from infoshot.errors import InvalidArgumentError
from infoshot.features import default_features_path, digest, read_features
from infoshot.reproduce.experiments import EXPERIMENTS
from infoshot.reproduce.extras import add_convergence, add_run_times
from infoshot.reproduce.render import write_report
from infoshot.reproduce.run import Plan, PlannedCell, plan_cells, run_cells
from infoshot.reproduce.store import Source, Store
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
    seed: Annotated[int, typer.Option(help="Task i depends on the seed and on i only.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
) -> None:
    """Every table and figure of the TIM paper on your features, beside the published numbers.

    Writes report.html, tables.md, tables.tex, results.json, accuracies.safetensors (of every task)
    and the figure. The same command again goes on where it stopped.

    Example: infoshot reproduce --features mine.safetensors --out report
    """
    check_device(device)
    plan = Plan(
        experiments=_experiments(only),
        n_tasks=tasks,
        n_gradient_tasks=gradient_tasks or (_ON_CPU if device == "cpu" else tasks),
        seed=seed,
        device=device,
    )
    loaded = _read(features or [default_features_path()], dataset or [])
    planned = plan_cells(plan, loaded)
    make_folder(out)
    check_outputs(features or [], [out / "results.json"])
    with sole_writer(out):
        store = Store(out, [source for source, _ in loaded])
        store.read()
        _run(planned, loaded, store)
        if "table5" in plan.experiments:
            add_run_times(store, loaded[0][1], device)
        if "figure1" in plan.experiments:
            add_convergence(store, loaded[0][1], device)
        write_report(plan, planned, store)
    stdout().print(f"Report: {out / 'report.html'}", soft_wrap=True)


def _experiments(only: str | None) -> list[str]:
    names = list(EXPERIMENTS) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in EXPERIMENTS:
            raise InvalidArgumentError(unknown_name("experiment", name, EXPERIMENTS))
    return names


def _read(paths: Sequence[Path], datasets: Sequence[str]) -> list[tuple[Source, FeatureTable]]:
    """The feature files with what is known of them."""
    if datasets and len(datasets) != len(paths):
        raise InvalidArgumentError(
            f"--dataset must be given once for each feature file; got {len(datasets)} for "
            f"{len(paths)} files."
        )
    loaded = []
    for number, path in enumerate(paths):
        table = read_features(path)
        known = table.provenance
        name = datasets[number] if datasets else known.get("dataset", "")
        source = Source(path.name, digest(path), name, known.get("backbone", ""))
        loaded.append((source, table))
    return loaded


def _run(
    planned: Sequence[PlannedCell], loaded: Sequence[tuple[Source, FeatureTable]], store: Store
) -> None:
    """Run the cells that are missing, with a progress bar."""
    missing = [item for item in planned if not item.not_run and item.key not in store.rows]
    with progress_bar("tasks") as progress:
        bar = progress.add_task("", total=sum(item.protocol.n_tasks for item in missing))

        def begin(item: PlannedCell) -> None:
            cell = item.cell
            name = f"{cell.experiment} {cell.paper_method} {cell.loss} {cell.ways}-way"
            progress.update(bar, description=f"{name} {cell.shots}-shot")
            if progress.disable:
                say(f"{name} {cell.shots}-shot ...")

        run_cells(
            planned,
            loaded,
            store,
            on_cell=begin,
            on_progress=lambda n_done: progress.advance(bar, n_done),
        )
