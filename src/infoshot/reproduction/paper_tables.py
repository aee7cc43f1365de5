"""Tables 1 to 4 in the paper's layout, with the numbers measured here beside the published ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from infoshot.benchmark.plots import Mark
from infoshot.reproduction.coverage import OWN_TRAINING, Coverage, Filled, find_number
from infoshot.reproduction.network_groups import Group, Measured, Results
from infoshot.reproduction.paper import (
    BACKBONES,
    DATASETS,
    EXPERIMENTS,
    WHOLE_NETWORK,
    Published,
    Setting,
    backbone_family,
    published_rows,
    published_value,
)
from infoshot.reproduction.paper_systems import PLAIN, has_own_training

_SHORT = {OWN_TRAINING: "own training"}
NOTE = (
    "Accuracy in percent. Measured here: the mean over networks ± the 95% interval over tasks; s "
    "is the sample standard deviation over networks, range the difference of two. Paper: as "
    "printed. "
    "A number of another backbone, or of a variant of the system, says so. "
    "No data: neither features nor a system of this data set. Own training: the system trains its "
    "own network and was not given. Bold: the best of a column among networks of one kind."
)


@dataclass(frozen=True)
class Column:
    """A data set with the ways and shots of its tasks."""

    dataset: str
    ways: int
    shots: int

    @property
    def top(self) -> str:
        """First line of the header: the data set, or the ways where they differ from five."""
        return DATASETS[self.dataset] if self.ways == 5 else f"{self.ways}-way"


@dataclass(frozen=True)
class Line:
    """A method, the parameters and the loss it optimises where a table says so, and a network.

    ``recipe`` is that of networks with another base training, on which all methods run.
    """

    name: str
    parameters: str
    loss: str
    backbone: str
    transductive: bool = field(compare=False)
    recipe: str = PLAIN

    def setting(self, column: Column) -> Setting:
        """Return the setting of the number in a column."""
        return self.name, self.parameters, self.loss, column.ways, column.shots


@dataclass(frozen=True)
class Number:
    """A number of a table: measured, published, or missing for a reason.

    ``backbone`` is that of a measured number, if it is not the one of the line, and ``variant``
    says that it is not of the system itself.
    """

    measured: Measured | None = None
    published: float | None = None
    missing: str = "-"
    n_networks: int = 0
    backbone: str = ""
    variant: bool = False

    @property
    def remark(self) -> str:
        """What is shown with the mean: what is different, the spread, how many networks have it."""
        if self.measured is None:
            return ""
        n = len(self.measured.networks)
        partial = f"{n} of {self.n_networks} networks" if n < self.n_networks else ""
        variant = "variant" if self.variant else ""
        parts = (self.backbone, variant, self.measured.spread_text, partial)
        return ", ".join(filter(None, parts))

    @property
    def printed(self) -> str:
        """The published number as the paper prints it, or a dash."""
        return "-" if self.published is None else as_printed(self.published)


@dataclass(frozen=True)
class Block:
    """Lines under a heading. Numbers compete for the best of a column within a ``contest``."""

    title: str
    contest: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: blocks of lines, columns, and the numbers where they cross."""

    experiment: str
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]
    numbers: Mapping[tuple[Line, Column], Number]
    groups: tuple[Group, ...]

    def label(self, line: Line) -> str:
        """Return the first cell of a line: the loss in the ablation, else the method."""
        return line.loss if self.experiment == "table4" else line.name

    @property
    def caption(self) -> str:
        """The title, with data sets and backbones of the measured numbers."""
        title = f"{EXPERIMENTS[self.experiment]} (Table {self.experiment[-1]} of the paper)"
        shared = [group.about for group in self.groups if not has_own_training(group.recipe)]
        n_systems = len(self.groups) - len(shared)
        if n_systems:
            shared.append(f"systems with their own training ({n_systems})")
        measured = "; ".join(shared)
        return f"{title}. Measured here on {measured}" if measured else title

    def marks(self, column: Column) -> Iterator[Mark]:
        """Yield the measured numbers of a column for a figure, with the published ones."""
        for line in (line for block in self.blocks for line in block.lines):
            number = self.numbers[line, column]
            if number.measured is not None:
                backbone = number.backbone or BACKBONES.get(line.backbone, line.backbone)
                variant = "variant" if number.variant else ""
                yield Mark(
                    ", ".join(filter(None, (line.name, backbone, line.recipe, variant))),
                    line.transductive,
                    number.measured.mean,
                    number.measured.ci95,
                    number.published,
                )

    @property
    def best(self) -> frozenset[tuple[Line, Column, str]]:
        """Where the best numbers of a contest are, ``here`` and in the ``paper``."""
        found: list[tuple[Line, Column, str]] = []
        for contest in dict.fromkeys(block.contest for block in self.blocks):
            lines = [
                line for block in self.blocks if block.contest == contest for line in block.lines
            ]
            for column in self.columns:
                found += self._best_of(lines, column)
        return frozenset(found)

    def _best_of(self, lines: Sequence[Line], column: Column) -> Iterator[tuple[Line, Column, str]]:
        """Yield the best numbers of some lines in a column, with those that print the same."""
        numbers = {line: self.numbers[line, column] for line in lines}
        ours = {line: n for line, n in numbers.items() if not n.backbone}
        means = {line: n.measured.mean for line, n in ours.items() if n.measured}
        printed = {line: n.published for line, n in numbers.items() if n.published is not None}
        for where, values in (("here", means), ("paper", printed)):
            shown = {line: f"{value:6.2f}" for line, value in values.items()}
            for line, text in shown.items():
                if text == max(shown.values()):
                    yield line, column, where


def as_printed(value: float) -> str:
    """Format an accuracy as the paper prints it: one decimal, or two where it has two."""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def paper_table(experiment: str, results: Results, coverage: Coverage) -> PaperTable:
    """Arrange measured and published numbers as in the paper.

    Methods and backbones that the paper does not have follow those of their block. Data sets that
    the paper does not have in this table are left out. Systems with their own training are shown in
    the line of the paper, whatever their backbone is.
    """
    rows = published_rows(experiment)
    columns = tuple(sorted({_column(row) for row in rows}, key=_order))
    datasets = {column.dataset for column in columns}
    ran = {item.source.digest for item in results.planned if item.cell.experiment == experiment}
    systems = [
        group for group in results.systems if any(source.digest in ran for source in group.sources)
    ]
    settings = {item.cell.setting for item in results.planned if item.cell.experiment == experiment}
    measured = [
        group
        for group in results.groups
        if any(results.measured(group, setting) for setting in settings)
    ]
    groups = tuple(group for group in (*measured, *systems) if group.dataset in datasets)
    missing = {
        (entry.published.setting, entry.published.dataset, entry.published.backbone): entry.status
        for entry in coverage.entries
        if entry.published.table == experiment
    }
    published = dict.fromkeys(map(_line, rows))
    own = dict.fromkeys(_own_lines(experiment, results, groups))
    numbers = {
        (line, column): _own_number(line, column, results, groups)
        for line in own
        for column in columns
    }
    numbers |= {
        (line, column): _number(experiment, line, column, results, missing)
        for line in published
        for column in columns
    }
    shown = [
        line
        for line in {**published, **own}
        if line in published or any(numbers[line, column].measured for column in columns)
    ]
    return PaperTable(experiment, columns, _blocks(experiment, shown), numbers, groups)


def _column(row: Published) -> Column:
    return Column(row.dataset, row.ways, row.shots)


def _order(column: Column) -> tuple[int, int, int]:
    return list(DATASETS).index(column.dataset), column.ways, column.shots


def _line(row: Published) -> Line:
    name, parameters, loss, _, _ = row.setting
    return Line(name, parameters, loss, row.backbone, row.transductive)


def _own_lines(experiment: str, results: Results, groups: tuple[Group, ...]) -> Iterator[Line]:
    """Yield the lines of all cells that run here, in the order of the paper's methods.

    Systems with their own training have the line of the paper, if it prints them.
    """
    by_digest = {source.digest: group for group in groups for source in group.sources}
    printed = {row.method for row in published_rows(experiment)}
    for item in results.planned:
        cell, group = item.cell, by_digest.get(item.source.digest)
        if cell.experiment != experiment or group is None:
            continue
        has_line = has_own_training(group.recipe)
        if not (has_line and cell.name in printed):
            yield Line(
                cell.name,
                cell.parameters,
                cell.loss,
                group.backbone,
                cell.run.transductive,
                PLAIN if has_line else group.recipe,
            )


def _own_number(line: Line, column: Column, results: Results, groups: tuple[Group, ...]) -> Number:
    """Return what a line has in a column, if the paper does not print this line."""
    setting = line.setting(column)
    for group in groups:
        recipe = PLAIN if has_own_training(group.recipe) else group.recipe
        same = (group.dataset, group.backbone, recipe) == (
            column.dataset,
            line.backbone,
            line.recipe,
        )
        measured = results.measured(group, setting) if same else None
        if measured:
            return Number(measured, None, "", len(results.find(group, setting)))
    return Number()


def _number(
    experiment: str,
    line: Line,
    column: Column,
    results: Results,
    missing: Mapping[tuple[Setting, str, str], str],
) -> Number:
    """Return what a line of the paper has in a column."""
    setting = line.setting(column)
    where = (column.dataset, line.backbone)
    published = published_value(experiment, setting, *where)
    status = missing.get((setting, *where), "-")
    filled = find_number(experiment, setting, *where, results)
    if filled is None:
        return Number(None, published, _SHORT.get(status, status))
    if _has_own_line(filled, setting):
        return Number(None, published, "-" if published is None else _pointer(filled, setting))
    measured = results.measured(filled.group, filled.setting)
    n_networks = len(results.find(filled.group, filled.setting))
    backbone = BACKBONES.get(filled.backbone, filled.backbone)
    return Number(measured, published, "", n_networks, backbone, bool(filled.variant))


def _has_own_line(filled: Filled, setting: Setting) -> bool:
    """Whether a number that could fill a line of the paper is in a line of its own."""
    group = filled.group
    if has_own_training(group.recipe):
        return False
    return bool(filled.backbone) or filled.setting != setting or group.recipe != PLAIN


def _pointer(filled: Filled, setting: Setting) -> str:
    """Return where a number is that has its own line."""
    if filled.setting != setting:
        return "see the probe"
    backbone = filled.group.backbone
    return (
        f"see {BACKBONES.get(backbone, backbone)}" if filled.backbone else f"see {filled.variant}"
    )


def _blocks(experiment: str, lines: Sequence[Line]) -> tuple[Block, ...]:
    """Group lines as the paper does: Table 1 by kind and backbone, Table 4 by parameters."""
    blocks: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        blocks.setdefault(_heading(experiment, line), []).append(line)
    return tuple(
        Block(title, contest, tuple(members)) for (title, contest), members in blocks.items()
    )


def _heading(experiment: str, line: Line) -> tuple[str, str]:
    """Return the title of the block that a line belongs to, and its contest."""
    backbone = BACKBONES.get(line.backbone, line.backbone)
    if experiment == "table1":
        kind = "Transductive" if line.transductive else "Inductive"
        family = backbone_family(line.backbone)
        return f"{kind}, {family}", family
    if experiment == "table4":
        over = "{phi, W}" if line.parameters == WHOLE_NETWORK else f"{{{line.parameters}}}"
        title = ", ".join(filter(None, (line.name, over, backbone, line.recipe)))
        return title, title
    return "", ""
