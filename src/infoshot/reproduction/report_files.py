"""The files of a report: tables as Markdown and LaTeX, the figure, and one page with everything.

A table of a report has our numbers beside the published ones. Everything is made from what the
store holds, so the same results give the same files.
"""

from collections.abc import Iterable, Mapping, Sequence

from infoshot.benchmark import with_interval
from infoshot.benchmark.convergence import CurveSummary
from infoshot.benchmark.latex import latex_text
from infoshot.benchmark.plots import plot_convergence
from infoshot.core.atomic import write_atomically
from infoshot.report.page import Picture, Section, Strong, Table, Text, page
from infoshot.reproduction.paper import (
    BACKBONES,
    DATASETS,
    EXPERIMENTS,
    FAILS,
    FULL_LOSS,
    HOLDS,
    NOT_RUN,
    QUERIES,
    SHIFTED,
    UNDECIDED,
    Accuracies,
    Cell,
    Finding,
    Published,
    check_findings,
    published_rows,
)
from infoshot.reproduction.report_cells import Plan, PlannedCell, Source, Store

Findings = Mapping[Source, Sequence[Finding]]
_TITLE = "Transductive Information Maximization for Few-Shot Learning, reproduced"
_RUN_NOTE = (
    "Accuracy in percent with the 95% confidence interval over our tasks. The difference is our "
    "accuracy minus the published one for the same data set and backbone, with our interval."
)
_PUBLISHED_NOTE = "Numbers of the paper, for comparison; none of them was computed here."
_TIME_NOTE = (
    "Solving only: features and tasks are given and nothing is scored. Median of several runs "
    "after a warm-up. On a CPU one core is used, and all cores for a whole network."
)
_FIGURE_NOTE = (
    "Accuracy on the queries and mutual information between queries and predictions (alpha = 1) "
    "during a solve, against time per task on a logarithmic axis. Above, every task is solved "
    "alone; below, all tasks together, which is impossible if each fine-tunes the whole network "
    "{phi+W}. Predictions over {phi+W} are those of the network in evaluation mode. Recording "
    "does not count. Steps are timed one by one, so whole solves take less time (Table 5)."
)
_PUBLISHED_TEXT = (
    'Columns named "published" have the numbers of the paper. Its authors computed them on '
    "features of their own, so a difference in absolute accuracy says more about the features "
    "than about the method. Compare the gains between methods."
)


def collect_findings(plan: Plan, planned: Sequence[PlannedCell], store: Store) -> Findings:
    """Check the findings of the paper on each feature file, except those of the domain shift."""
    times = [entry for entry in store.extra.get("run_times", []) if entry["device"] == plan.device]
    return {
        source: check_findings(_accuracies(planned, store, source), times, source.name)
        for source in store.sources
        if source.dataset != SHIFTED
    }


def write_report(
    plan: Plan, planned: Sequence[PlannedCell], store: Store, findings: Findings
) -> None:
    """Write ``tables.md``, ``tables.tex``, the figure and ``report.html``."""
    tables = {name: _run_tables(name, planned, store) for name in plan.experiments}
    parts = [table for name in plan.experiments for table in tables[name]]
    for source, found in findings.items():  # without times, which differ from run to run
        parts.append(_finding_table([item for item in found if not item.timed], source))
    parts += [_published_table(name) for name in plan.experiments if name != "figure1"]
    write_atomically(store.folder / "tables.md", "\n".join(_markdown(table) for table in parts))
    tex = "\n".join(_latex(table) for table in parts)
    write_atomically(store.folder / "tables.tex", f"% needs \\usepackage{{booktabs}}\n{tex}")
    figure = _draw_figure(store)
    sections = [_summary(findings)]
    sections += [_section(name, tables[name], store, figure) for name in plan.experiments]
    sections.append(_environment(plan, store))
    subtitle = "InfoShot on " + ", ".join(source.name for source in store.sources)
    write_atomically(store.folder / "report.html", page(_TITLE, sections, subtitle=subtitle))


def _accuracies(planned: Iterable[PlannedCell], store: Store, source: Source) -> Accuracies:
    """Return accuracies of 5-way tasks; the TIM of Table 1 is the full loss of the ablation."""
    found = {}
    for item in planned:
        cell = item.cell
        if cell.ways != 5 or item.source != source or item.key not in store.rows:
            continue
        tasks = store.accuracies[item.key]
        found[cell.name, cell.parameters, cell.loss, cell.shots] = tasks
        if cell.experiment == "table1" and cell.name in ("TIM-ADM", "TIM-GD"):
            found[cell.name, "W", FULL_LOSS, cell.shots] = tasks
    return found


def _run_tables(experiment: str, planned: Sequence[PlannedCell], store: Store) -> list[Table]:
    """Return one table per feature file: our numbers, the published ones, and the differences."""
    tables = []
    for source in store.sources:
        rows: dict[str, list[PlannedCell]] = {}
        for item in planned:
            if item.cell.experiment == experiment and item.source == source:
                rows.setdefault(_label(item.cell), []).append(item)
        if not rows:
            continue
        shots = sorted({item.cell.shots for group in rows.values() for item in group})
        header = ["method", "assumes", "tasks"]
        for shot in shots:
            header += [f"{shot}-shot", "published", "difference"]
        lines = [_line(label, group, shots, store) for label, group in rows.items()]
        dataset = DATASETS.get(source.dataset, source.dataset or "unknown data set")
        backbone = BACKBONES.get(source.backbone, source.backbone or "unknown backbone")
        caption = f"{EXPERIMENTS[experiment]}, run here on {source.name} ({dataset}, {backbone})"
        tables.append(Table(header, lines, caption, _RUN_NOTE))
    return tables


def _label(cell: Cell) -> str:
    parts = [cell.name]
    if cell.parameters:
        parts.append(f"{{{cell.parameters}}}")
    if cell.ways != 5:
        parts.append(f"{cell.ways}-way")
    return " ".join(parts) + (f": {cell.loss}" if cell.loss else "")


def _line(
    label: str, group: Sequence[PlannedCell], shots: Sequence[int], store: Store
) -> list[str]:
    counts = sorted({store.rows[item.key].tasks for item in group if item.key in store.rows})
    tasks = [f"{count:,}" for count in counts]
    line = [label, ", ".join(group[0].cell.assumes) or "nothing", " / ".join(tasks)]
    by_shots = {item.cell.shots: item for item in group}
    for shot in shots:
        line += _numbers(by_shots[shot], store) if shot in by_shots else ["", "", ""]
    return line


def _numbers(item: PlannedCell, store: Store) -> list[str]:
    """Return our number, the published one and the difference."""
    published = item.cell.published(item.source.dataset, item.source.backbone)
    printed = "" if published is None else _as_printed(published)
    row = store.rows.get(item.key)
    if row is None:
        return [f"not run: {item.not_run}" if item.not_run else "not run", printed, ""]
    ours = with_interval(row.mean, row.ci95)
    if published is None:
        return [ours, "", ""]
    interval = ours.removeprefix(f"{row.mean:.2f}")
    return [ours, printed, f"{row.mean - published:+.2f}{interval}"]


def _as_printed(value: float) -> str:
    """Format an accuracy as the paper prints it: one decimal, or two where it has two."""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _published_table(experiment: str) -> Table:
    """Return every number that the paper prints in this table."""
    rows = published_rows(experiment)
    columns = list(dict.fromkeys(_column(row) for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        kind = "yes" if row.transductive else "no"
        key = (row.method, BACKBONES[row.backbone], kind, row.parameters, row.loss)
        value = f"{row.value:g} s" if experiment == "table5" else _as_printed(row.value)
        lines.setdefault(key, {})[_column(row)] = value
    with_loss = any(row.loss for row in rows)
    header = ["method", "backbone", "transductive", *(["parameters", "loss"] if with_loss else [])]
    return Table(
        [*header, *columns],
        [
            [*(key if with_loss else key[:3]), *(values.get(column, "-") for column in columns)]
            for key, values in lines.items()
        ],
        f"{EXPERIMENTS[experiment]}, published",
        _PUBLISHED_NOTE,
    )


def _column(row: Published) -> str:
    ways = "" if row.ways == 5 else f"{row.ways}-way "
    return f"{DATASETS[row.dataset]}\n{ways}{row.shots}-shot"


def _finding_table(found: Iterable[Finding], source: Source) -> Table:
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
        f"Findings of the paper on {source.name}",
        "Methods are compared on the same tasks. The 95% confidence interval of the difference "
        "decides.",
    )


def _time_table(store: Store) -> Table:
    return Table(
        ["method", "single task", "per task in a batch", "tasks in the batch", "device"],
        [
            [
                entry["method"],
                f"{1000 * entry['alone_s']:.3g} ms",
                "-" if entry["batched_s"] is None else f"{1000 * entry['batched_s']:.3g} ms",
                str(entry["batch"]),
                entry["device"],
            ]
            for entry in store.extra.get("run_times", [])
        ],
        "Run-times per 5-way 5-shot task, run here",
        _TIME_NOTE,
    )


def _markdown(table: Table) -> str:
    """Format a table as Markdown."""
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    body = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return "\n\n".join(part for part in (f"**{table.caption}**", body, table.note) if part) + "\n"


def _latex(table: Table) -> str:
    """Format a table as LaTeX with booktabs."""
    header, *rows = (
        " & ".join(latex_text(cell) for cell in line) + r" \\"
        for line in (table.header, *table.rows)
    )
    return "\n".join(
        (
            r"\begin{table}\centering\small",
            rf"\caption{{{latex_text(table.caption)}. {latex_text(table.note)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
            r"\toprule",
            header,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}\end{table}",
            "",
        )
    )


def _draw_figure(store: Store) -> Picture | None:
    """Draw the convergence figure into the folder, if its curves were recorded."""
    entries = [*store.extra.get("figure1", []), *store.extra.get("figure1_network", [])]
    entries = [entry for entry in entries if "milliseconds_alone" in entry]
    if not entries:
        return None
    curves = [CurveSummary(**entry) for entry in entries]
    png = store.folder / "figure1.png"
    counts = ", ".join(f"{curve.n_tasks} of {curve.method}" for curve in curves)
    if len({curve.n_tasks for curve in curves}) == 1:
        counts = f"{curves[0].n_tasks} for each method"
    title = f"5-way 1-shot on {curves[0].device}, mean and 95% band of tasks: {counts}"
    plot_convergence(curves, [png, png.with_suffix(".svg")], title)
    ends = ", ".join(f"{curve.method} ends at {curve.accuracy[-1][0]:.1f}%" for curve in curves)
    return Picture(
        png.read_bytes(),
        alt=f"Accuracy and mutual information against time per task; {ends}.",
        caption=_FIGURE_NOTE,
    )


def _summary(findings: Findings) -> Section:
    counts = [f"{source.name}: {_count(found)}" for source, found in findings.items()]
    tables = [_finding_table(found, source) for source, found in findings.items()]
    return Section("Findings", [Text([*counts, _PUBLISHED_TEXT]), *tables])


def _count(found: Sequence[Finding]) -> str:
    """Return a sentence with the number of findings per verdict."""
    verdicts = [item.verdict for item in found if item.verdict != NOT_RUN]
    if not verdicts:
        return "None of the paper's findings was checked."
    counts = ", ".join(f"{name}: {verdicts.count(name)}" for name in (HOLDS, FAILS, UNDECIDED))
    return f"{len(verdicts)} findings of the paper were checked on these features ({counts})."


def _section(name: str, tables: Sequence[Table], store: Store, figure: Picture | None) -> Section:
    title = f"{name[:-1].capitalize()} {name[-1]}: {EXPERIMENTS[name]}"
    if name == "figure1":
        return Section(title, [figure] if figure else [Text(["Not run."])])
    parts: list[Table | Text | Picture] = list(tables)
    if name == "table5":
        parts.append(_time_table(store))
    elif not tables:
        parts.append(Text(["Not run: there are no features of this data set."]))
    return Section(title, [*parts, _published_table(name)])


def _environment(plan: Plan, store: Store) -> Section:
    row = next(iter(store.rows.values()), None)
    known = [] if row is None else [[key, str(value)] for key, value in row.environment.items()]
    features = [
        ["features", f"{source.name} (sha256 {source.digest[:16]}...)"] for source in store.sources
    ]
    features.append(["tasks", f"{QUERIES} queries per class, seed {plan.seed}"])
    return Section("Environment", [Table(["", ""], [*features, *known], "Environment of the run")])
