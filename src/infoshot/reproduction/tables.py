"""The tables of a report: what was run here beside what was published, and the published rows."""

from collections.abc import Iterable, Mapping, Sequence

from infoshot.benchmark import with_interval
from infoshot.report.page import Strong, Table
from infoshot.reproduction.experiments import EXPERIMENTS, FULL_LOSS, Cell
from infoshot.reproduction.orderings import FAILS, Accuracies, Ordering
from infoshot.reproduction.plan import PlannedCell
from infoshot.reproduction.published import Published, published_rows
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.sources import BACKBONES, DATASETS, Source


def run_tables(experiment: str, planned: Sequence[PlannedCell], store: Store) -> list[Table]:
    """One table per feature file: our numbers, the published ones, and the differences."""
    tables = []
    for source in store.sources:
        here = [
            item for item in planned if item.cell.experiment == experiment and item.source == source
        ]
        if not here:
            continue
        shots = sorted({item.cell.shots for item in here})
        header = ["method", "assumes", "tasks"]
        for shot in shots:
            header += [f"{shot}-shot", "published", "difference"]
        lines = [_line(name, group, shots, store) for name, group in _by_label(here).items()]
        dataset = DATASETS.get(source.dataset, source.dataset or "unknown data set")
        backbone = BACKBONES.get(source.backbone, source.backbone or "unknown backbone")
        caption = f"{EXPERIMENTS[experiment]}, run here on {source.name} ({dataset}, {backbone})"
        tables.append(Table(header, lines, caption, _NOTE))
    return tables


_NOTE = (
    "Accuracy in percent with the 95% interval of our tasks. The difference is ours minus the "
    "published number for the same data set and backbone, with our interval."
)


def published_table(experiment: str) -> Table:
    """Every number that the paper prints in this table."""
    rows = published_rows(experiment)
    columns = list(dict.fromkeys(_column(row) for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        value = f"{row.value:g} s" if experiment == "table5" else _printed(row.value)
        lines.setdefault(_published_line(row), {})[_column(row)] = value
    with_loss = any(row.loss for row in rows)
    header = ["method", "backbone", "transductive", *(["parameters", "loss"] if with_loss else [])]
    return Table(
        [*header, *columns],
        [
            [*(key if with_loss else key[:3]), *(values.get(column, "-") for column in columns)]
            for key, values in lines.items()
        ],
        f"{EXPERIMENTS[experiment]}, published",
        "Numbers of the paper, for comparison; none of them was run here.",
    )


def ordering_table(found: Iterable[Ordering], features: str) -> Table:
    """What the paper finds, and whether it holds here."""
    return Table(
        ["finding of the paper", "here", "accuracies"],
        [
            [
                item.statement,
                Strong(item.verdict) if item.verdict == FAILS else item.verdict,
                item.numbers,
            ]
            for item in found
        ],
        f"Findings of the paper on {features}",
        "Compared on the same tasks; the 95% interval of the difference decides.",
    )


def accuracies_on(planned: Iterable[PlannedCell], store: Store, source: Source) -> Accuracies:
    """Accuracies of 5-way tasks by method, parameters, loss and shots.

    The TIM of Table 1 is the full loss over W of the ablation.
    """
    found = {}
    for item in planned:
        cell = item.cell
        if cell.ways != 5 or item.source != source or item.key not in store.rows:
            continue
        tasks = store.accuracies[item.key]
        found[cell.paper_method, cell.parameters, cell.loss, cell.shots] = tasks
        if cell.experiment == "table1" and cell.run in ("tim-adm", "tim-gd"):
            found[cell.paper_method, "W", FULL_LOSS, cell.shots] = tasks
    return found


def markdown(table: Table) -> str:
    """A table as Markdown."""
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    body = "\n".join(f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)
    return "\n\n".join(part for part in (f"**{table.caption}**", body, table.note) if part) + "\n"


def latex(table: Table) -> str:
    """A table as LaTeX with booktabs."""
    rows = [" & ".join(_tex(cell) for cell in line) + r" \\" for line in table.rows]
    return "\n".join(
        (
            r"\begin{table}\centering\small",
            rf"\caption{{{_tex(table.caption)}. {_tex(table.note)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
            r"\toprule",
            " & ".join(_tex(cell) for cell in table.header) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}\end{table}",
            "",
        )
    )


def _by_label(items: Iterable[PlannedCell]) -> Mapping[str, list[PlannedCell]]:
    groups: dict[str, list[PlannedCell]] = {}
    for item in items:
        groups.setdefault(_label(item.cell), []).append(item)
    return groups


def _label(cell: Cell) -> str:
    parts = [cell.paper_method]
    if cell.parameters:
        parts.append(f"{{{cell.parameters}}}")
    if cell.ways != 5:
        parts.append(f"{cell.ways}-way")
    return " ".join(parts) + (f": {cell.loss}" if cell.loss else "")


def _line(
    label: str, group: Sequence[PlannedCell], shots: Sequence[int], store: Store
) -> list[str]:
    tasks = sorted({f"{item.protocol.n_tasks:,}" for item in group if not item.not_run})
    line = [label, ", ".join(group[0].cell.assumes) or "nothing", " / ".join(tasks)]
    by_shots = {item.cell.shots: item for item in group}
    for shot in shots:
        line += _numbers(by_shots[shot], store) if shot in by_shots else ["", "", ""]
    return line


def _numbers(item: PlannedCell, store: Store) -> list[str]:
    """Ours, published, difference."""
    published = item.cell.published(item.source.dataset, item.source.backbone)
    printed = "" if published is None else _printed(published)
    row = store.rows.get(item.key)
    if row is None:
        return [f"not run: {item.not_run}" if item.not_run else "not run", printed, ""]
    ours = with_interval(row.mean, row.ci95)
    if published is None:
        return [ours, "", ""]
    interval = ours.removeprefix(f"{row.mean:.2f}")
    return [ours, printed, f"{row.mean - published:+.2f}{interval}"]


def _published_line(row: Published) -> tuple[str, ...]:
    kind = "yes" if row.transductive else "no"
    return (row.method, BACKBONES[row.backbone], kind, row.parameters, row.loss)


def _column(row: Published) -> str:
    ways = "" if row.ways == 5 else f"{row.ways}-way "
    return f"{DATASETS[row.dataset]}\n{ways}{row.shots}-shot"


def _printed(value: float) -> str:
    """An accuracy as the paper prints it: one digit after the point, two where it has two."""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def _tex(text: str) -> str:
    replaced = text.replace("\n", " ")
    for character in "%&#_{}":
        replaced = replaced.replace(character, f"\\{character}")
    for character, symbol in (("±", r"\pm"), ("|", r"\mid"), (">", ">"), ("<", "<")):
        replaced = replaced.replace(character, f"${symbol}$")
    return replaced
