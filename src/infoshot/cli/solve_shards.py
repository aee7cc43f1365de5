"""``infoshot solve-shards``: label the rows of many files of features as one task."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from infoshot.cli import image_options as given
from infoshot.cli._console import SpokenProgress, complain, print_table, progress_bar, stdout
from infoshot.cli._options import methods_with_settings
from infoshot.cli.prior import class_shares
from infoshot.core.checks import in_class_order
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.memory import keep_freed_memory
from infoshot.distributed import Ranks, join_processes
from infoshot.shards import ShardSummary, Watcher, solve_shards
from infoshot.shards.support import read_support
from infoshot.solvers import Method

_MOST_CLASSES = 30  # that are listed in the terminal


def solve_shards_command(
    support: Annotated[Path, typer.Option(help="Feature file with the labelled rows.")],
    queries: Annotated[
        Path, typer.Option(help="Folder of shards: safetensors or .npy, float16 or float32.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for labels, state and run.json.")],
    method: Annotated[str, typer.Option(help="tim-adm or tim-auto.")] = "tim-adm",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: n_steps=20.")
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="tim-adm: how frequent classes are, all of them: a=0.7,b=0.3 or JSON."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="tim-adm: stop once no probability of 2,048 queries moves by more."),
    ] = None,
    device: given.Device = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another solve in --out.")] = False,
) -> None:
    """Label the rows of many files of features as one task, without holding them in memory.

    Writes labels/NAME.safetensors for every shard. Killed, the same command goes on from the last
    finished iteration.

    Example: infoshot solve-shards --support few.safetensors --queries shards/ --out run/

    Several processes: torchrun --nproc-per-node 4 -m infoshot solve-shards ... (the same labels).
    """
    chosen = _method(method, settings or [], prior, tolerance, support)
    keep_freed_memory()
    with join_processes(given.device_or_default(device)) as ranks:
        with _watched(ranks) as watcher:
            summary = solve_shards(
                support,
                queries,
                out,
                method=chosen,
                ranks=ranks,
                force=force,
                watcher=watcher,
            )
        if ranks.is_main:
            _print(summary, out)


def _method(
    name: str, settings: list[str], prior: str | None, tolerance: float | None, support: Path
) -> Method:
    method, *others = methods_with_settings(name, settings)
    if others:
        raise InvalidArgumentError(f"--method must be one method; got '{name}'.")
    if tolerance is not None:
        if "tolerance" not in method.solver.settings():
            raise InvalidArgumentError(f"--tolerance is for tim-adm; got '{name}'.")
        method = method.with_settings({"tolerance": tolerance})
    if prior is None:
        return method
    if "class_prior" not in method.solver.settings():
        raise InvalidArgumentError(f"--method '{name}' cannot use a --prior.")
    shares = in_class_order(class_shares(prior), read_support(support).names)
    return method.with_settings({"class_prior": shares})


@contextmanager
def _watched(ranks: Ranks) -> Iterator[Watcher]:
    """Draw a progress bar in the main process; without a terminal, say phases."""
    with progress_bar("rows", shown=ranks.is_main) as progress:
        bar = progress.add_task("", total=None)
        spoken = SpokenProgress(shown=ranks.is_main and progress.disable)

        def phase(name: str, n_rows: int) -> None:
            total = n_rows * ranks.size or None  # the others have about as many
            progress.update(bar, description=name, total=total, completed=0)
            spoken.begin(name, total)

        def advance(n_rows: int) -> None:
            progress.advance(bar, n_rows * ranks.size)
            spoken.advance(n_rows * ranks.size)

        yield Watcher(
            phase,
            advance,
            lambda sentence: complain("Warning", sentence),
        )


def _print(summary: ShardSummary, out: Path) -> None:
    most = sorted(summary.counts.items(), key=lambda pair: -pair[1])
    print_table(["class", "rows"], [[name, f"{n:,}"] for name, n in most[:_MOST_CLASSES]])
    if len(most) > _MOST_CLASSES:
        stdout().print(f"and {len(most) - _MOST_CLASSES:,} more classes; all are in run.json")
    ended = "less moved than the tolerance" if summary.converged else "all that were asked for"
    speed = f", {summary.seconds_per_step:.2f} s each" if summary.seconds_per_step else ""
    if summary.note:
        stdout().print(summary.note, soft_wrap=True)
    before = "Finished already: " if summary.was_finished else ""
    stdout().print(
        f"{before}{summary.n_queries:,} rows of {summary.n_shards:,} shards labelled after "
        f"{summary.n_steps} iterations ({ended}{speed}): {out / 'labels'}",
        soft_wrap=True,
    )
