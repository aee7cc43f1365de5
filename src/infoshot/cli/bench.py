"""``infoshot bench``: compare methods on many tasks drawn from one feature file."""

from pathlib import Path
from typing import Annotated

import typer

from infoshot.benchmark import BenchResult
from infoshot.benchmark import bench as run_bench
from infoshot.benchmark.results import accuracies_path
from infoshot.cli._console import print_table, stdout
from infoshot.cli._options import Column, LabelColumn, parse_numbers, parse_settings
from infoshot.core.outputs import is_stream
from infoshot.core.places import local_files, locate
from infoshot.features import default_features_path
from infoshot.labelling.output_checks import check_results


def bench(
    features: Annotated[
        str | None,
        typer.Option(help="Feature file (safetensors, npz, Parquet). Default: the embedded one."),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods separated by commas: names, package.module:Name, system:FOLDER of a "
            "trained few-shot system, or 'all'. A name may be followed by settings, so that a "
            "method can occur several times: 'tim-adm,tim-adm(temperature=10)'. Methods that these "
            "features do not support are skipped with a warning."
        ),
    ] = "prototype,tim-adm",
    ways: Annotated[str, typer.Option(help="Classes per task, such as 5,10.")] = "5",
    shots: Annotated[str, typer.Option(help="Labelled samples per class, such as 1,5.")] = "1,5",
    queries: Annotated[int, typer.Option(help="Queries per class.")] = 15,
    tasks: Annotated[int, typer.Option(help="Number of tasks.")] = 10_000,
    regime: Annotated[
        list[str] | None,
        typer.Option(
            help="How queries are distributed over classes; separate several by commas or repeat "
            "the option: balanced (default), dirichlet:A, effective:K (queries from K classes "
            "only), few:N (N queries in total), open:N (N queries from classes without support)."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Task i depends only on the seed and on i.")] = 0,
    against: Annotated[
        str | None,
        typer.Option(
            help="Print the difference of every method to this one on the same tasks, with its "
            "95% interval. The method is added if --methods lacks it."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting of all methods that have it (temperature=10) or of one "
            "(tim-adm.n_steps=50). May be repeated.",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the rows here as JSON.")] = None,
    accuracies: Annotated[
        Path | None,
        typer.Option(
            help="Write per-task accuracies here as safetensors, with keys such as "
            "tim-adm/5-way/1-shot/balanced. Default with --json rows.json: "
            "rows.accuracies.safetensors beside it."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the rows here as CSV.")] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Write a LaTeX table here (booktabs, best in bold).")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    threads: Annotated[int | None, typer.Option(help="Default: one per core.")] = None,
    column: Column = None,
    label_column: LabelColumn = None,
) -> None:
    """Compare methods on many random tasks: accuracy with 95% interval, macro F1, time per task.

    Balanced tasks need shots + queries labelled rows per class. In the other regimes queries move
    to other classes of the task if a class has too few rows; a warning gives the number.

    Example: infoshot bench --features mine.npz --methods prototype,tim-adm --shots 1,5
    """
    place = locate(features or default_features_path())
    if json and not accuracies and not is_stream(json):
        accuracies = accuracies_path(json)
    check_results(local_files(place), [json, accuracies, csv, latex])
    # New files are written after every cell. Pipes are written once, and so are files that exist:
    # an interrupted run must not replace an earlier, complete result by a part.
    once = any(output and (is_stream(output) or output.exists()) for output in (json, accuracies))
    regimes = ",".join(regime or ["balanced"])
    n_written = 0

    def write(so_far: BenchResult) -> None:
        nonlocal n_written
        if not once:
            so_far.write(json=json, accuracies=accuracies)
            n_written = len(so_far.rows)

    try:
        result = run_bench(
            place,
            methods,
            ways=parse_numbers("--ways", ways),
            shots=parse_numbers("--shots", shots),
            queries=queries,
            tasks=tasks,
            regimes=regimes,
            seed=seed,
            settings=parse_settings(settings or []),
            against=against,
            device=device,
            dtype=dtype,
            threads=threads,
            column=column,
            label_column=label_column,
            on_cell=write,
            progress=True,
        )
    except KeyboardInterrupt as stop:
        if n_written:
            stop.add_note(f"finished rows in {json}: {n_written}")
        raise
    if once:
        result.write(json=json, accuracies=accuracies)
    result.write(csv=csv, latex=latex)
    _print(result, place.name, queries)
    outputs = {"Rows": json, "Per-task accuracies": accuracies, "CSV": csv, "LaTeX table": latex}
    for what, output in outputs.items():
        if output:
            stdout().print(f"{what} written to {output}", soft_wrap=True)


def _print(result: BenchResult, name: str, queries: int) -> None:
    parts, regimes = [name], list(dict.fromkeys(row.regime for row in result.rows))
    if not all(regime.startswith("few:") for regime in regimes):
        parts.append(f"{queries} queries per class")
    if len(regimes) == 1:
        parts.append(regimes[0])
    print_table(*result.table(), title=f"{', '.join(parts)}: accuracy in %, 95% interval")
    for note in result.notes():
        stdout().print(note, soft_wrap=True)
    if result.differences:
        against = result.differences[0].against
        title = f"Difference to {against} on the same tasks, in percentage points, 95% interval"
        print_table(*result.difference_table(), title=title)
