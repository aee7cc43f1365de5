"""The files of a report: tables as Markdown and LaTeX, figures, and one page that holds it all."""

from collections.abc import Mapping, Sequence

from infoshot.benchmark.convergence import CurveSummary
from infoshot.benchmark.plots import plot_convergence
from infoshot.core.atomic import write_atomically
from infoshot.report.page import Picture, Section, Table, Text, page
from infoshot.reproduction.experiments import EXPERIMENTS, QUERIES
from infoshot.reproduction.orderings import Ordering, counted, orderings
from infoshot.reproduction.plan import SHIFTED, Plan, PlannedCell
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.tables import (
    accuracies_on,
    latex,
    markdown,
    ordering_table,
    published_table,
    run_tables,
)

_TITLE = "Transductive Information Maximization for Few-Shot Learning, reproduced"


def write_report(plan: Plan, planned: Sequence[PlannedCell], store: Store) -> None:
    """Write everything that can be looked at, from what the store holds."""
    times = [entry for entry in store.extra.get("run_times", []) if entry["device"] == plan.device]
    found = {
        source.name: orderings(accuracies_on(planned, store, source), times)
        for source in store.sources
        if source.dataset != SHIFTED
    }
    tables = {name: run_tables(name, planned, store) for name in plan.experiments}
    parts = [table for name in plan.experiments for table in tables[name]]
    for name, items in found.items():  # without times, so that the same numbers give the same file
        timeless = [item for item in items if "faster" not in item.statement]
        parts.append(ordering_table(timeless, name))
    parts += [published_table(name) for name in plan.experiments if name != "figure1"]
    write_atomically(store.folder / "tables.md", "\n".join(markdown(table) for table in parts))
    tex = "\n".join(latex(table) for table in parts)
    write_atomically(store.folder / "tables.tex", f"% needs \\usepackage{{booktabs}}\n{tex}")
    figure = _figure(store)
    sections = [_summary(found)]
    for name in plan.experiments:
        sections.append(_section(name, tables[name], store, figure))
    sections.append(_environment(plan, store))
    write_atomically(
        store.folder / "report.html", page(_TITLE, sections, subtitle=_subtitle(store))
    )


def _subtitle(store: Store) -> str:
    return "InfoShot on " + ", ".join(source.name for source in store.sources)


def _summary(found: Mapping[str, Sequence[Ordering]]) -> Section:
    text = Text(
        [
            *(f"{name}: {counted(items)}" for name, items in found.items()),
            "Numbers marked as published are the paper's. They were computed by its authors on "
            "features of their own, so a difference in absolute accuracy says more about the "
            "features than about the method; compare the gains.",
        ]
    )
    tables = [ordering_table(items, name) for name, items in found.items()]
    return Section("Findings", [text, *tables])


def _section(name: str, tables: Sequence[Table], store: Store, figure: Picture | None) -> Section:
    title = f"{_numbered(name)}: {EXPERIMENTS[name]}"
    if name == "figure1":
        return Section(title, [figure] if figure else [Text(["Not run."])])
    parts: list[Table | Text | Picture] = list(tables)
    if name == "table5":
        parts += [_time_table(store)]
    elif not tables:
        parts.append(Text(["Not run: features of this data set were not given."]))
    return Section(title, [*parts, published_table(name)])


def _numbered(name: str) -> str:
    return f"{name[:-1].capitalize()} {name[-1]}"


def _time_table(store: Store) -> Table:
    return Table(
        ["method", "a task alone", "per task in a batch", "tasks in the batch", "device"],
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
        "Solving only: features are given, tasks drawn before, nothing is scored; warmed up, the "
        "device waited for, the median of several. On a CPU with one core, over a whole network "
        "with all of them.",
    )


def _figure(store: Store) -> Picture | None:
    entries = [*store.extra.get("figure1", []), *store.extra.get("figure1_network", [])]
    if not entries:
        return None
    curves = [CurveSummary(**entry) for entry in entries]
    png = store.folder / "figure1.png"
    counts = ", ".join(f"{curve.n_tasks} of {curve.method}" for curve in curves)
    title = f"5-way 1-shot, mean and 95% band of tasks: {counts}"
    plot_convergence(curves, [png, png.with_suffix(".svg")], title)
    ends = ", ".join(f"{curve.method} ends at {curve.accuracy[-1][0]:.1f}%" for curve in curves)
    return Picture(
        png.read_bytes(),
        alt=f"Accuracy and mutual information against time per task; {ends}.",
        caption="Accuracy of the queries and mutual information between queries and predictions "
        "(alpha = 1) while a solve runs, against time per task on a logarithmic axis.",
    )


def _environment(plan: Plan, store: Store) -> Section:
    row = next(iter(store.rows.values()), None)
    known = [] if row is None else [[key, str(value)] for key, value in row.environment.items()]
    features = [
        ["features", f"{source.name} (sha256 {source.digest[:16]}...)"] for source in store.sources
    ]
    features.append(["tasks", f"{QUERIES} queries per class, seed {plan.seed}"])
    return Section("Environment", [Table(["", ""], [*features, *known], "Where this was run")])
