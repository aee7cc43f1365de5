"""How many of the paper's numbers a report measures, and why it lacks the others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infoshot.reproduction.network_groups import Results
from infoshot.reproduction.paper import (
    ACCURACY_TABLES,
    BACKBONES,
    DATASETS,
    ENT_MIN,
    PAPER_METHODS,
    Published,
    published_rows,
)
from infoshot.reproduction.report_cells import NEEDS_IMAGES

MEASURED, NO_DATA, OWN_TRAINING = "measured", "no data", "needs its own training"
NOT_RUN = "not run"


@dataclass(frozen=True)
class Entry:
    """A published number and what became of it; ``reason`` explains what was not run."""

    published: Published
    status: str
    reason: str = ""

    @property
    def text(self) -> str:
        """Status and reason."""
        return f"{self.status}: {self.reason}" if self.reason else self.status


@dataclass(frozen=True)
class Coverage:
    """Every number of Tables 1 to 4 of the paper, with what became of it."""

    entries: tuple[Entry, ...]

    def count(self, table: str = "") -> Counter[str]:
        """Return how many numbers have each status, in all tables or in one."""
        return Counter(
            entry.status for entry in self.entries if table in ("", entry.published.table)
        )

    @property
    def sentence(self) -> str:
        """The counts in one sentence."""
        counts = self.count()
        parts = [f"Measured {counts[MEASURED]} of the {len(self.entries)} numbers of Tables 1 to 4"]
        if counts[NO_DATA]:
            parts.append(f"{counts[NO_DATA]} have no data here ({self._without_data()})")
        if counts[OWN_TRAINING]:
            parts.append(f"{counts[OWN_TRAINING]} need their own training")
        if counts[NOT_RUN]:
            parts.append(f"{counts[NOT_RUN]} were not run (the report says why)")
        first, *others = parts
        return f"{first}; {', '.join(others)}." if others else f"{first}."

    def _without_data(self) -> str:
        missing = {e.published.dataset for e in self.entries if e.status == NO_DATA}
        return ", ".join(name for key, name in DATASETS.items() if key in missing)


def cover(results: Results, experiments: Sequence[str]) -> Coverage:
    """Compare the results with every number of Tables 1 to 4.

    A number has ``no data`` if no feature file of its data set was given. Otherwise it ``needs its
    own training`` if its method does not work on given features. Everything else is ``measured``
    or, for a reason, ``not run``.

    Parameters
    ----------
    results
        The results of a report.
    experiments
        Experiments that were asked for.
    """
    rows = [row for table in ACCURACY_TABLES for row in published_rows(table)]
    return Coverage(tuple(_entry(row, results, experiments) for row in rows))


def _entry(row: Published, results: Results, experiments: Sequence[str]) -> Entry:
    if not any(group.dataset == row.dataset for group in results.groups):
        return Entry(row, NO_DATA)
    if row.method not in PAPER_METHODS and row.method != ENT_MIN[0]:
        return Entry(row, OWN_TRAINING)
    if row.table not in experiments:
        return Entry(row, NOT_RUN, f"Table {row.table[-1]} was not requested")
    for group in results.groups:
        if (group.dataset, group.backbone) == (row.dataset, row.backbone):
            if results.measured(group, row.setting):
                return Entry(row, MEASURED)
            planned = results.find(group, row.setting)
            return Entry(row, NOT_RUN, planned[0].not_run if planned else NEEDS_IMAGES)
    dataset, backbone = DATASETS[row.dataset], BACKBONES[row.backbone]
    return Entry(row, NOT_RUN, f"no features of {backbone} on {dataset}")
