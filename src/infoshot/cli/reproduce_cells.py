"""What ``infoshot reproduce`` shows while its cells run."""

from collections.abc import Sequence

from infoshot.cli._console import progress_bar, say
from infoshot.core.types import FeatureTable
from infoshot.reproduction.plan import PlannedCell, run_cells
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.sources import Source
from infoshot.reproduction.whole_network import Network


def run_missing(
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
