"""How many of the paper's numbers a report measures, and why it lacks the others."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infoshot.reproduction.network_groups import Group, Results
from infoshot.reproduction.paper import (
    ACCURACY_TABLES,
    BACKBONES,
    DATASETS,
    PROBES,
    Published,
    Setting,
    printed_backbone,
    published_rows,
)
from infoshot.reproduction.paper_systems import PLAIN, PaperSystem, has_own_training, system_of
from infoshot.reproduction.report_cells import NEEDS_IMAGES

MEASURED, OTHER_BACKBONE, VARIANT = "measured", "another backbone", "variant"
NO_DATA, OWN_TRAINING, PUBLISHED_ONLY = "no data", "needs its own training", "published only"
NOT_RUN = "not run"
STATUSES = (
    MEASURED,
    OTHER_BACKBONE,
    VARIANT,
    NO_DATA,
    OWN_TRAINING,
    PUBLISHED_ONLY,
    NOT_RUN,
)


@dataclass(frozen=True)
class Filled:
    """Where a report has a number for a row of the paper.

    Attributes
    ----------
    group, setting
        The networks and the setting of the number.
    backbone
        The backbone, if it is not that of the row.
    variant
        How network or method differ from those of the row; empty if they do not.
    """

    group: Group
    setting: Setting
    backbone: str = ""
    variant: str = ""

    @property
    def remark(self) -> str:
        """Backbone and variant as text."""
        return ", ".join(filter(None, (BACKBONES.get(self.backbone, self.backbone), self.variant)))


@dataclass(frozen=True)
class Entry:
    """A published number and what became of it; ``reason`` explains it where it is not measured."""

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
        data = ", ".join(
            DATASETS[key] for key in DATASETS if key in {e.dataset for e in self._of(NO_DATA)}
        )
        names = ", ".join(sorted({row.method for row in self._of(PUBLISHED_ONLY)}, key=str.lower))
        more = {
            OTHER_BACKBONE: "{} more with another backbone",
            VARIANT: "{} more with a variant of the system",
        }
        lacking = {
            NO_DATA: f"{{}} have no data here ({data})",
            OWN_TRAINING: "{} need their own training",
            PUBLISHED_ONLY: f"{{}} are published only ({names})",
            NOT_RUN: "{} were not run (the report says why)",
        }
        total = f"Measured {counts[MEASURED]} of the {len(self.entries)} numbers of Tables 1 to 4"
        found, others = (
            [text.format(counts[status]) for status, text in texts.items() if counts[status]]
            for texts in (more, lacking)
        )
        return "; ".join(filter(None, (", ".join([total, *found]), ", ".join(others)))) + "."

    def _of(self, status: str) -> list[Published]:
        return [entry.published for entry in self.entries if entry.status == status]


def cover(results: Results, experiments: Sequence[str]) -> Coverage:
    """Compare the results with every number of Tables 1 to 4.

    A number is ``measured`` if the system of its row ran with the backbone of its row. A number of
    ``another backbone``, or of a ``variant`` of the system, is counted apart. The others have ``no
    data`` if neither features nor a trained system of the data set were given, ``need their own
    training`` if the system was not given, or were ``not run`` for a reason. Those of systems that
    nobody can run are ``published only``.

    Parameters
    ----------
    results
        The results of a report.
    experiments
        Experiments that were asked for.
    """
    rows = [row for table in ACCURACY_TABLES for row in published_rows(table)]
    return Coverage(tuple(_entry(row, results, experiments) for row in rows))


def find_number(
    table: str, setting: Setting, dataset: str, backbone: str, results: Results
) -> Filled | None:
    """Find the number of a row of the paper: its own system and backbone first.

    Parameters
    ----------
    table
        The table of the row.
    setting
        The setting of the number, with the paper's name of the method.
    dataset, backbone
        Data set and backbone of the number in the paper.
    results
        The results of a report.
    """
    name, parameters, loss, ways, shots = setting
    probe = (PROBES.get(name, name), parameters, loss, ways, shots)
    system, found = system_of(name), []
    for group in (*results.systems, *results.groups):
        row_backbone = printed_backbone(table, name, group.backbone)
        if group.dataset != dataset or row_backbone not in (backbone, ""):
            continue
        is_own = system.is_filled_by(group.recipe) if system else group.recipe == PLAIN
        variant = system.variant if system and is_own else "" if is_own else _training(group)
        other = group.backbone if group.backbone != backbone else ""
        if results.measured(group, setting):
            found.append(Filled(group, setting, other, variant))
        if probe != setting and results.measured(group, probe):
            found.append(Filled(group, probe, other, probe[0].partition(": ")[2]))
    return min(found, key=lambda one: (bool(one.backbone), bool(one.variant)), default=None)


def _training(group: Group) -> str:
    return group.recipe or "plain base training"


def _entry(row: Published, results: Results, experiments: Sequence[str]) -> Entry:
    system = system_of(row.method)
    if system and system.missing:
        return Entry(row, PUBLISHED_ONLY, system.missing)
    groups = [g for g in (*results.systems, *results.groups) if g.dataset == row.dataset]
    if not groups:
        return Entry(row, NO_DATA)
    if row.table in experiments:
        filled = find_number(row.table, row.setting, row.dataset, row.backbone, results)
        if filled:
            status = MEASURED if not filled.remark else VARIANT
            return Entry(row, OTHER_BACKBONE if filled.backbone else status, filled.remark)
    if system and not _is_given(system, row, groups, results):
        return Entry(row, OWN_TRAINING)
    if row.table not in experiments:
        return Entry(row, NOT_RUN, f"Table {row.table[-1]} was not requested")
    return Entry(row, NOT_RUN, _reason(row, groups, results))


def _is_given(
    system: PaperSystem, row: Published, groups: Sequence[Group], results: Results
) -> bool:
    """Whether there is a network for a row, of the system or one on which a variant is planned."""
    return any(
        system.is_filled_by(group.recipe) or results.find(group, row.setting)
        for group in groups
        if printed_backbone(row.table, row.method, group.backbone) == row.backbone
    )


def _reason(row: Published, groups: Sequence[Group], results: Results) -> str:
    """Return why a number whose data set is there was not computed."""
    for group in groups:
        planned, own = results.find(group, row.setting), has_own_training(group.recipe)
        if planned if own else group.backbone == row.backbone:
            return planned[0].not_run if planned else NEEDS_IMAGES
    return f"no features of {BACKBONES[row.backbone]} on {DATASETS[row.dataset]}"
