"""``infoshot solve-shards``: label the rows of many files of features as one task."""

from typing import Annotated

import typer

from infoshot.cli import _options as given
from infoshot.cli import _ray_options as cluster
from infoshot.cli._console import print_table, stdout
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import is_main_process
from infoshot.shards import ShardSummary, solve_shards

_MOST_CLASSES = 30  # classes listed in the terminal


def solve_shards_command(
    support: Annotated[
        str, typer.Option(metavar="PATH", help="Feature file with the labelled rows, or Parquet.")
    ],
    queries: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Folder or pattern of shards: safetensors or .npy, float16 or float32, or "
            "Parquet, also remote, such as s3://bucket/folder.",
        ),
    ],
    out: Annotated[
        str, typer.Option(metavar="PATH", help="Folder for labels, state and run.json.")
    ],
    method: Annotated[
        str,
        typer.Option(
            help="tim-adm or tim-auto, which whitens features if the support file or the package "
            "knows the base classes of its network."
        ),
    ] = "tim-adm",
    settings: given.Settings = None,
    prior: Annotated[
        str | None,
        typer.Option(help="tim-adm: share of every class: a=0.7,b=0.3, or a JSON file."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="tim-adm: stop once no probability in a sample of 2,048 queries changes by more."
        ),
    ] = None,
    device: given.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another solve in --out.")] = False,
    column: given.Column = None,
    label_column: given.LabelColumn = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Parquet: columns to return with the labels, such as id,path; default: all but "
            "lists, structs and bytes."
        ),
    ] = None,
    engine: cluster.Engine = "torchrun",
    address: cluster.RayAddress = None,
    workers: cluster.Workers = None,
    cpus_per_worker: cluster.CpusPerWorker = None,
    gpus_per_worker: cluster.GpusPerWorker = None,
) -> None:
    """Label the rows of many files of features as one task, without holding them in memory.

    Writes labels/NAME.safetensors for every shard, or labels/NAME.parquet with the ids for a
    Parquet shard. If it is interrupted, rerun the command to resume after the last finished
    iteration.

    Example: infoshot solve-shards --support few.safetensors --queries shards/ --out run/

    Several processes: torchrun --nproc-per-node 4 -m infoshot solve-shards ... (the same labels).

    A Ray cluster: infoshot solve-shards ... --engine ray --address HOST:6379 (the same labels).
    """
    keep_freed_memory()
    summary = solve_shards(
        support,
        queries,
        out,
        method=method,
        settings=given.parse_settings(settings) if settings else None,
        prior=given.parse_prior(prior) if prior else None,
        tolerance=tolerance,
        device=device,
        force=force,
        column=column,
        label_column=label_column,
        keep=keep.split(",") if keep else None,
        engine=cluster.parse_engine(engine, address, workers, cpus_per_worker, gpus_per_worker),
        progress=True,
    )
    if is_main_process():
        _print(summary)


def _print(summary: ShardSummary) -> None:
    most = sorted(summary.counts.items(), key=lambda pair: -pair[1])
    print_table(["class", "rows"], [[name, f"{n:,}"] for name, n in most[:_MOST_CLASSES]])
    if len(most) > _MOST_CLASSES:
        stdout().print(f"and {len(most) - _MOST_CLASSES:,} more classes; all are in run.json")
    if summary.note:
        stdout().print(summary.note, soft_wrap=True)
    stopped = ", stopped by the tolerance" if summary.converged else ""
    speed = f", {summary.seconds_per_step:.2f} s each" if summary.seconds_per_step else ""
    before = "Already finished: " if summary.was_finished else ""
    stdout().print(
        f"{before}{summary.n_queries:,} rows of {summary.n_shards:,} shards labelled after "
        f"{summary.n_steps} iterations{speed}{stopped}: {summary.out / 'labels'}",
        soft_wrap=True,
    )
