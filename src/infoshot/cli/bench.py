"""``infoshot bench``: methods on many tasks drawn from one feature file."""

from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from infoshot.benchmark import Protocol, result_table
from infoshot.cli._console import print_table, stdout
from infoshot.cli._options import dtype_by_name, methods_with_settings, numbers
from infoshot.cli.cells import run_cells
from infoshot.features import default_features_path, read_features
from infoshot.tasks import TaskSpec
from infoshot.tasks.regimes import parse_regime


def bench(
    features: Annotated[
        Path | None,
        typer.Option(help="Feature file (safetensors or npz). Default: the embedded features."),
    ] = None,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = (
        "prototype,tim-adm"
    ),
    ways: Annotated[str, typer.Option(help="Classes per task, separated by commas.")] = "5",
    shots: Annotated[str, typer.Option(help="Labelled samples per class.")] = "1,5",
    queries: Annotated[int, typer.Option(help="Queries per class.")] = 15,
    tasks: Annotated[int, typer.Option(help="Number of tasks.")] = 10_000,
    regime: Annotated[
        str,
        typer.Option(
            help="Which queries: balanced, dirichlet:A, effective:K (of K classes only), few:N "
            "(N in all), open:N (N of classes without support)."
        ),
    ] = "balanced",
    seed: Annotated[int, typer.Option(help="Task i depends on the seed and on i only.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the rows here as JSON.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="Default: one per core.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting: temperature=10, tim-adm.n_steps=50."),
    ] = None,
) -> None:
    """Accuracy with 95% interval and time per task, over many random tasks.

    Every class needs shots + queries labelled rows. Example: infoshot bench --features mine.npz
    --methods prototype,tim-adm --shots 1,5
    """
    path = features or default_features_path()
    chosen = methods_with_settings(methods, settings or [])
    table = read_features(path)
    cells = [
        (
            method,
            Protocol(
                spec=TaskSpec(
                    n_way=n_way,
                    n_shot=n_shot,
                    n_query=queries,
                    seed=seed,
                    regime=parse_regime(regime),
                ),
                n_tasks=tasks,
                device=device,
                dtype=dtype_by_name(dtype),
                n_threads=threads,
            ),
        )
        for method, n_way, n_shot in product(
            chosen, numbers("--ways", ways), numbers("--shots", shots)
        )
    ]
    rows = run_cells(table, path, cells, json)
    header, lines = result_table(rows)
    amount = "" if regime.startswith("few:") else f"{queries} queries per class, "
    title = f"{path.name}, {amount}{regime}: accuracy in %, 95% interval"
    print_table(header, lines, title=title)
    if json:
        stdout().print(f"Rows written to {json}")
