"""Cells of a benchmark with a progress bar: what ``bench`` and ``demo`` share."""

from collections.abc import Sequence
from pathlib import Path

from infoshot.benchmark import Protocol, rows_to_json, run_cell
from infoshot.cli._console import progress_bar, say
from infoshot.core.atomic import check_outputs, write_atomically
from infoshot.core.types import FeatureTable, ResultRow
from infoshot.features import digest
from infoshot.solvers import Method


def run_cells(
    table: FeatureTable,
    path: Path,
    cells: Sequence[tuple[Method, Protocol]],
    json: Path | None,
) -> list[ResultRow]:
    """Check all cells, then run them; after each the rows so far are in ``json``."""
    for method, protocol in cells:
        protocol.validate(table, method)
    check_outputs([path], [json])
    sha256 = digest(path)
    rows: list[ResultRow] = []
    with progress_bar("tasks") as progress:
        bar = progress.add_task("", total=sum(protocol.n_tasks for _, protocol in cells))
        for method, protocol in cells:
            spec = protocol.spec
            name = f"{method.name} {spec.n_way}-way {spec.n_shot}-shot"
            progress.update(bar, description=name)
            row = run_cell(
                table,
                method,
                protocol,
                features_name=path.name,
                features_digest=sha256,
                on_progress=lambda n_done: progress.advance(bar, n_done),
            )
            rows.append(row)
            if progress.disable:
                say(f"{name}: {row.mean:.2f} after {row.seconds:.1f} s")
            if json:
                write_atomically(json, rows_to_json(rows))
    return rows
