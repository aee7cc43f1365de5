"""Tables of a report beside those of the paper: groups, networks, findings, coverage, run times."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infoshot.benchmark import with_interval
from infoshot.report.page import Strong, Table
from infoshot.reproduction.coverage import MEASURED, STATUSES, Coverage
from infoshot.reproduction.family_findings import Comparison
from infoshot.reproduction.findings import Finding
from infoshot.reproduction.network_groups import Group, Measured, Results
from infoshot.reproduction.paper import (
    ACCURACY_TABLES,
    BACKBONES,
    DATASETS,
    ENT_MIN,
    EXPERIMENTS,
    TIM,
    Cell,
    Published,
    printed_backbone,
    published_rows,
)
from infoshot.reproduction.paper_systems import differences_of_run
from infoshot.reproduction.paper_tables import as_printed
from infoshot.reproduction.verdicts import FAILS, FAMILY_NOTE, HOLDS, METHOD_NOTE, UNDECIDED

_ONE_NETWORK_NOTE = (
    "Accuracy in percent with the 95% confidence interval over our tasks. The difference is our "
    "accuracy minus the published one for the same data set and backbone, with our interval."
)
_NETWORKS_NOTE = (
    "Accuracy in percent: the mean over networks with the 95% confidence interval over our tasks. "
    "Networks: their sample standard deviation (s), or the range of two. The interval alone "
    "understates the uncertainty, since another network gives other accuracies on the same tasks. "
    "The difference is our mean minus the published number for the same data set and backbone."
)
_SYSTEM_NOTE = (
    "Accuracy in percent: the mean over the runs with the 95% interval over tasks, the same tasks "
    "as in all other tables. Published: as printed in the paper, with the backbone if it is "
    "another one."
)
_MARKS = (
    "Positive differences agree with the statement; (no): the interval contradicts it; (?): it is "
    "undecided. For several pairs of networks: the mean and the range."
)
_TIME_NOTE = (
    "Solving only: features and tasks are given and nothing is scored. Median of several runs "
    "after a warm-up. On a CPU one core is used, and all cores for a whole network. Paper: on a "
    "GTX 1080 Ti with WRN28-10."
)


def group_table(experiment: str, group: Group, results: Results) -> Table | None:
    """Return our numbers of a group, the published ones and the differences."""
    lines = _by_label(experiment, group, results)
    if not lines:
        return None
    shots = sorted({cell.shots for cells in lines.values() for cell in cells})
    several = len(group.sources) > 1
    header = ["method", "assumes", "tasks"]
    for shot in shots:
        header += [f"{shot}-shot", *(["networks"] if several else []), "published", "difference"]
    rows = [_group_line(label, cells, shots, group, results) for label, cells in lines.items()]
    caption = f"{EXPERIMENTS[experiment]}, run here on {group.files} ({_describe(group)})"
    notes = [_NETWORKS_NOTE if several else _ONE_NETWORK_NOTE, *_reasons(lines, group, results)]
    return Table(header, rows, caption, " ".join(notes))


def _reasons(lines: Mapping[str, Sequence[Cell]], group: Group, results: Results) -> Iterator[str]:
    """Yield a sentence for each reason why cells were not run, with their methods."""
    found: dict[str, list[str]] = {}
    for label, cells in lines.items():
        for cell in cells:
            for item in results.find(group, cell.setting):
                if item.not_run and not results.is_stored(item):
                    found.setdefault(item.not_run, []).append(label)
    for reason, labels in found.items():
        yield f"Not run, {reason}: {'; '.join(dict.fromkeys(labels))}."


def network_table(experiment: str, group: Group, results: Results) -> Table | None:
    """Return the numbers of each network of a group, if it has several."""
    lines = _by_label(experiment, group, results)
    if not lines or len(group.sources) == 1:
        return None
    shots = sorted({cell.shots for cells in lines.values() for cell in cells})
    header = ["method"]
    header += [
        f"network {number}\n{shot}-shot" for number, _ in enumerate(group.sources, 1)
        for shot in shots
    ]  # fmt: skip
    rows = []
    for label, cells in lines.items():
        by_shots = {cell.shots: cell for cell in cells}
        row = [label]
        for source in group.sources:
            alone = Group(group.dataset, group.backbone, (source,))
            for shot in shots:
                cell = by_shots.get(shot)
                number = results.measured(alone, cell.setting) if cell else None
                row.append(number.text if number else "-")
        rows.append(row)
    names = "; ".join(f"network {n}: {source.name}" for n, source in enumerate(group.sources, 1))
    caption = f"{EXPERIMENTS[experiment]}, each network ({_describe(group)})"
    return Table(header, rows, caption, f"Accuracy in percent with the 95% interval. {names}.")


def _describe(group: Group) -> str:
    dataset = DATASETS.get(group.dataset, group.dataset or "unknown data set")
    backbone = BACKBONES.get(group.backbone, group.backbone or "unknown backbone")
    return f"{dataset}, {backbone}"


def _by_label(experiment: str, group: Group, results: Results) -> dict[str, list[Cell]]:
    lines: dict[str, list[Cell]] = {}
    digests = {source.digest for source in group.sources}
    for item in results.planned:
        if item.cell.experiment == experiment and item.source.digest in digests:
            cells = lines.setdefault(_label(item.cell), [])
            if item.cell.shots not in {cell.shots for cell in cells}:
                cells.append(item.cell)
    return lines


def _label(cell: Cell) -> str:
    parts = [cell.name]
    if cell.parameters:
        parts.append(f"{{{cell.parameters}}}")
    if cell.ways != 5:
        parts.append(f"{cell.ways}-way")
    return " ".join(parts) + (f": {cell.loss}" if cell.loss else "")


def _group_line(
    label: str, cells: Sequence[Cell], shots: Sequence[int], group: Group, results: Results
) -> list[str]:
    tasks = set().union(*(results.n_tasks(group, cell.setting) for cell in cells))
    several = len(group.sources) > 1
    line = [
        label,
        ", ".join(results.assumes(group, cells[0])) or "nothing",
        " / ".join(f"{n:,}" for n in sorted(tasks)),
    ]
    by_shots = {cell.shots: cell for cell in cells}
    for shot in shots:
        if shot not in by_shots:
            line += [""] * (4 if several else 3)
            continue
        cell = by_shots[shot]
        number = results.measured(group, cell.setting)
        line += _numbers(cell, number, group)
    return line


def _numbers(cell: Cell, number: Measured | None, group: Group) -> list[str]:
    """Return our number, the spread of several networks, the published one and the difference."""
    several = len(group.sources) > 1
    published = cell.published(group.dataset, group.backbone)
    printed = "" if published is None else as_printed(published)
    if number is None:
        return ["not run", *([""] if several else []), printed, ""]
    spread = [number.spread_text or "1 network"] if several else []
    if published is None:
        return [number.text, *spread, "", ""]
    interval = "" if several else number.text.removeprefix(f"{number.mean:.2f}")
    return [number.text, *spread, printed, f"{number.mean - published:+.2f}{interval}"]


def finding_matrix(findings: Iterable[Finding], groups: Sequence[Group]) -> Table:
    """Return the verdicts: statements by data sets and backbones."""
    verdicts: dict[tuple[str, str], dict[str, str]] = {}
    for item in findings:
        if not item.timed:
            verdicts.setdefault((item.table, item.statement), {})[item.group] = item.verdict
    ordered = sorted(verdicts.items(), key=lambda entry: entry[0][0])
    headings: dict[int, str] = {}
    for number, ((table, _), _) in enumerate(ordered):
        if number == 0 or table != ordered[number - 1][0][0]:
            headings[number] = f"Table {table[-1]}: {EXPERIMENTS[table]}"
    header = ["finding of the paper", *(group.title.replace(", ", "\n", 1) for group in groups)]
    rows = [
        [statement, *(_emphasise(found.get(group.title, "-")) for group in groups)]
        for (_, statement), found in ordered
    ]
    note = METHOD_NOTE + " A dash: the statement is not about this data set."
    return Table(header, rows, "Findings of the paper by data set and backbone", note, headings)


def finding_table(findings: Iterable[Finding], title: str, note: str = METHOD_NOTE) -> Table:
    """Return findings with the numbers behind them."""
    rows = [
        [item.statement, _emphasise(item.verdict), item.numbers or "-", item.published or "-"]
        for item in findings
    ]
    header = ["finding of the paper", "here", "numbers", "difference\nin the paper"]
    return Table(header, rows, f"Findings of the paper on {title}", note)


def family_table(findings: Sequence[Finding]) -> Table:
    """Return the findings about systems with their own training."""
    rows = [
        [item.statement, item.group, _emphasise(item.verdict), item.numbers or "-"]
        for item in findings
    ]
    header = ["order in the paper's Table 1", "data set", "here", "differences in points"]
    return Table(header, rows, "The order of the families", FAMILY_NOTE)


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return the differences behind the findings about systems, a line for each system."""
    relations = list(dict.fromkeys(one.relation for one in comparisons))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for one in comparisons:
        group = one.subject.group
        line = (
            one.subject.name,
            DATASETS.get(group.dataset, group.dataset),
            BACKBONES.get(group.backbone, group.backbone),
            f"{one.shots}-shot",
        )
        mark = {HOLDS: "", FAILS: " (no)", UNDECIDED: " (?)"}[one.verdict]
        lines.setdefault(line, {})[one.relation] = _marked(one.difference, mark)
    header = ["system", "data set", "backbone", "tasks"]
    header += [relation.replace(" ", "\n") for relation in relations]
    rows = [
        [*line, *(found.get(relation, "-") for relation in relations)]
        for line, found in lines.items()
    ]
    return Table(header, rows, "Differences behind the order of the families, in points", _MARKS)


def _marked(difference: str, mark: str) -> str:
    """Return a difference with its mark; the range over networks is in a second line."""
    first, bracket, rest = difference.partition(" (")
    return first + mark + (f"\n({rest}" if bracket else "")


def speed_table(findings: Iterable[Finding]) -> Table:
    """Return the findings about run times, a line for each device."""
    rows = [
        [item.statement, item.group or "-", _emphasise(item.verdict), item.numbers or "-",
         item.published]
        for item in findings
        if item.timed
    ]  # fmt: skip
    note = "One order of magnitude counts as 10 times, two as 100. Single tasks decide."
    header = ["finding of the paper", "device", "here", "ratio", "paper"]
    return Table(header, rows, "Findings of the paper on run-times", note)


def backbone_table(results: Results) -> Table | None:
    """Compare the backbones of each data set on the same images, if one has several."""
    rows = []
    for pair in itertools.combinations(results.groups, 2):
        if pair[0].dataset != pair[1].dataset or "" in {group.backbone for group in pair}:
            continue
        for name, shots in itertools.product(("Prototype", "SimpleShot", *TIM), (1, 5)):
            first, second = (results.measured(group, (name, "", "", 5, shots)) for group in pair)
            if first and second:
                change = with_interval(
                    second.mean - first.mean, math.hypot(first.ci95, second.ci95)
                )
                what = f"{name}, {shots}-shot"
                rows.append([_compare(pair), what, first.text, second.text, change])
    if not rows:
        return None
    note = (
        "The interval is over tasks; it does not cover the spread between networks of one backbone."
    )
    header = ["backbones", "method", "first", "second", "difference"]
    return Table(header, rows, "Backbones on the same images", note)


def _compare(pair: Sequence[Group]) -> str:
    first, second = (BACKBONES.get(group.backbone, group.backbone) for group in pair)
    return f"{DATASETS.get(pair[0].dataset, pair[0].dataset)}: {first}, {second}"


def _emphasise(verdict: str) -> str:
    return Strong(verdict) if verdict == FAILS else verdict


def system_table(results: Results) -> Table:
    """Return the numbers of all systems with their own training, beside the published ones."""
    header = ["system", "data set", "backbone", "training", "tasks"]
    header += ["1-shot", "published", "5-shot", "published"]
    rows = []
    for group in results.systems:
        digests = {source.digest for source in group.sources}
        cells = [item.cell for item in results.planned if item.source.digest in digests]
        for name, ways in dict.fromkeys((cell.name, cell.ways) for cell in cells):
            of_row = [cell for cell in cells if (cell.name, cell.ways) == (name, ways)]
            if any(results.measured(group, cell.setting) for cell in of_row):
                rows.append(_system_line(of_row, group, results))
    caption = "Systems with their own training, run here on test images"
    return Table(header, rows, caption, _SYSTEM_NOTE)


def _system_line(cells: Sequence[Cell], group: Group, results: Results) -> list[str]:
    first, backbone = cells[0], BACKBONES.get(group.backbone, group.backbone)
    shots = results.training_shots(group)
    episodes = f"episodes, {' and '.join(map(str, shots))}-shot" if shots else ""
    difference = differences_of_run(group.recipe) if episodes else group.recipe
    training = ", ".join(filter(None, (episodes, difference)))
    tasks = set().union(*(results.n_tasks(group, cell.setting) for cell in cells))
    name = first.name if first.ways == 5 else f"{first.name}, {first.ways}-way"
    line = [name, DATASETS.get(group.dataset, group.dataset), backbone, training]
    line.append(" / ".join(f"{n:,}" for n in sorted(tasks)))
    by_shots = {cell.shots: cell for cell in cells}
    for n_shot in (1, 5):
        cell = by_shots.get(n_shot)
        number = results.measured(group, cell.setting) if cell else None
        shown = "\n".join(filter(None, (number.text, number.spread_text))) if number else "-"
        line += [shown, _published_beside(cell, group) if cell else "-"]
    return line


def _published_beside(cell: Cell, group: Group) -> str:
    """Return the published number of a system, with its backbone if it is not ours."""
    backbone = printed_backbone(cell.experiment, cell.name, group.backbone)
    published = cell.published(group.dataset, backbone)
    if published is None:
        return "-"
    other = "" if backbone == group.backbone else f"\n{BACKBONES[backbone]}"
    return as_printed(published) + other


def coverage_table(coverage: Coverage) -> Table:
    """Return how many numbers of each table were measured."""
    rows = []
    for table in (*ACCURACY_TABLES, ""):
        counts = coverage.count(table)
        name = f"Table {table[-1]}" if table else "all"
        rows.append([name, str(counts.total()), *(str(counts[status]) for status in STATUSES)])
    return Table(["", "published", *STATUSES], rows, "Numbers of the paper")


def missing_table(coverage: Coverage) -> Table:
    """Return every number that was not measured, grouped by table, reason and method."""
    found: dict[tuple[str, str], list[str]] = {}
    for entry in coverage.entries:
        if entry.status != MEASURED:
            key = (f"Table {entry.published.table[-1]}", entry.text)
            found.setdefault(key, []).append(_method(entry.published))
    rows = [
        [table, why, str(len(methods)), ", ".join(dict.fromkeys(methods))]
        for (table, why), methods in found.items()
    ]
    return Table(["table", "why", "numbers", "methods"], rows, "Numbers that were not measured")


def _method(row: Published) -> str:
    over = f" {{{row.parameters}}}" if row.parameters else ""
    return f"{row.method}{over} ({BACKBONES[row.backbone]})"


def time_table(times: Sequence[Mapping[str, Any]]) -> Table:
    """Return the measured run times beside the published ones."""
    printed = {row.method: row.value for row in published_rows("table5")}
    rows = []
    for entry in times:
        name = ENT_MIN[0] if entry["method"].startswith(ENT_MIN[0]) else entry["method"]
        batched = entry["batched_s"]
        rows.append(
            [
                entry["method"],
                f"{1000 * entry['alone_s']:.3g} ms",
                "-" if batched is None else f"{1000 * batched:.3g} ms",
                str(entry["batch"]),
                entry["device"],
                f"{1000 * printed[name]:g} ms" if name in printed else "-",
            ]
        )
    header = [
        "method",
        "single task",
        "per task in a batch",
        "tasks in the batch",
        "device",
        "paper",
    ]
    return Table(header, rows, "Run-times per 5-way 5-shot task, run here", _TIME_NOTE)
