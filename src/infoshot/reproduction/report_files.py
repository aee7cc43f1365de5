"""The files of a report: tables as Markdown and LaTeX, the figure, and one page with everything.

Everything is made from what the store holds, so the same results give the same files.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from infoshot.benchmark.convergence import CurveSummary
from infoshot.benchmark.plots import plot_convergence, plot_systems
from infoshot.core.atomic import write_atomically
from infoshot.core.types import ResultRow
from infoshot.report.page import Details, Part, Picture, Section, Table, Text, page
from infoshot.reproduction.coverage import Coverage
from infoshot.reproduction.family_findings import compare_families
from infoshot.reproduction.findings import SYSTEMS, Finding
from infoshot.reproduction.network_groups import Group, Results
from infoshot.reproduction.paper import ACCURACY_TABLES, DATASETS, EXPERIMENTS, QUERIES
from infoshot.reproduction.paper_tables import PaperTable, paper_table
from infoshot.reproduction.report_cells import Plan
from infoshot.reproduction.report_sources import Source
from infoshot.reproduction.report_store import Store
from infoshot.reproduction.report_tables import (
    backbone_table,
    comparison_table,
    coverage_table,
    family_table,
    finding_matrix,
    finding_table,
    group_table,
    missing_table,
    network_table,
    speed_table,
    system_table,
    time_table,
)
from infoshot.reproduction.table_formats import (
    TEX_HEADER,
    as_page_table,
    paper_table_to_latex,
    to_latex,
    to_markdown,
)
from infoshot.reproduction.verdicts import FAILS, HOLDS, NOT_RUN, UNDECIDED

_TITLE = "Transductive Information Maximization for Few-Shot Learning, reproduced"
_FIGURE_NOTE = (
    "Accuracy on the queries and mutual information between queries and predictions (alpha = 1) "
    "during a solve, against time per task on a logarithmic axis. Above, every task is solved "
    "alone; below, all tasks together, which is impossible if each fine-tunes the whole network "
    "{phi+W}. Predictions over {phi+W} are those of the network in evaluation mode. Recording "
    "does not count. Steps are timed one by one, so whole solves take less time (Table 5)."
)
_SYSTEMS_NOTE = (
    "Accuracy of everything that ran on 5-way tasks, best first. Circles are inductive, squares "
    "transductive, as in the paper's Table 1; filled marks were measured here with the named "
    "backbone, with the 95% interval over tasks; hollow marks are published, with the paper's "
    "backbone."
)
_PUBLISHED_TEXT = (
    'Columns named "paper" or "published" have the numbers of the paper. Its authors computed them '
    "on features of their own, so a difference in absolute accuracy says more about the features "
    "than about the method. Compare the gains between methods."
)
_MINI_TEXT = (
    "Networks trained on the 84 x 84 JPEG edition of mini-ImageNet, which is in circulation, have "
    "lower accuracies than those of the authors, who cropped from larger originals. On these "
    "images two networks and five recipes land within a few points of each other, and CUB loses "
    "three to five points when its images are squashed to 84 x 84: see docs/reproduction.md of "
    "the InfoShot repository."
)
_BASELINE_TEXT = (
    "Baseline and Baseline++ also run as probes: a linear or cosine classifier that Adam fits to "
    "the support, on features of the same base training as all other methods. The cited systems "
    "train the network and the classifier in their own way. A probe counts as a variant, and so "
    "does BD-CSPN on the shared network, or CC+rot without its unlabelled images."
)
_SYSTEMS_TEXT = (
    "All systems here, and all methods, see the same images and the same test tasks, in one code: "
    "the order of the filled marks compares them as we trained them, and paired intervals decide "
    "it. It does not say how good a published system is: the networks are ours, a row names the "
    "backbone where it is not the published one, and our images are smaller than those of the "
    "authors. The published numbers come from several papers with other images, networks and "
    "tasks, so a gap between a filled and a hollow mark is no measure of one system alone. Compare "
    "the order, and the gaps between systems."
)
_INTERVAL_TEXT = (
    "± is the 95% confidence interval over tasks: it says how well the tasks determine the mean "
    "accuracy of these networks on these test classes. It does not cover another base training "
    "(see the spread between networks), other images or other classes."
)


class Report:
    """Writes ``tables.md``, ``tables.tex``, the figure and ``report.html``.

    Parameters
    ----------
    plan
        What was asked for.
    store
        The folder, and what was computed.
    results, findings, coverage
        The same results by data set and backbone, the verdicts, and what became of the published
        numbers.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        results: Results,
        findings: Sequence[Finding],
        coverage: Coverage,
    ) -> None:
        self._plan, self._store, self._results = plan, store, results
        self._findings, self._coverage = findings, coverage
        self._tables = {
            name: paper_table(name, results, coverage)
            for name in plan.experiments
            if name in ACCURACY_TABLES
        }

    def write(self) -> None:
        """Write all files."""
        folder = self._store.folder
        paper = [as_page_table(table) for table in self._tables.values()]
        others = self._other_tables()
        text = "\n".join(to_markdown(table) for table in (*paper, *others))
        write_atomically(folder / "tables.md", text)
        tex = [paper_table_to_latex(table) for table in self._tables.values()]
        tex += [to_latex(table) for table in others]
        write_atomically(folder / "tables.tex", TEX_HEADER + "\n".join(tex))
        figure = _draw_figure(self._store)
        sections = [self._findings_section(), self._coverage_section()]
        if self._results.systems:
            sections.append(self._systems_section())
        sections += [self._section(name, figure) for name in self._plan.experiments]
        sections.append(_environment(self._plan, self._store))
        names = "; ".join(group.about for group in self._results.groups)
        if self._results.systems:
            names += f"; systems with their own training ({len(self._results.systems)})"
        document = page(_TITLE, sections, subtitle=f"InfoShot on {names}")
        write_atomically(folder / "report.html", document)

    def _other_tables(self) -> list[Table]:
        """Return tables of groups, findings and coverage; no times, which differ between runs."""
        groups = self._results.groups
        tables = [
            table
            for name in self._tables
            for group in groups
            for table in self._group_tables(name, group)
        ]
        judged = [item for item in self._findings if not item.timed and item.table != SYSTEMS]
        tables.append(finding_matrix(judged, groups))
        tables += [
            finding_table([item for item in judged if item.group == group.title], group.about)
            for group in groups
        ]
        tables += [coverage_table(self._coverage), missing_table(self._coverage)]
        if self._results.systems:
            tables += self._system_tables()
        return tables

    def _group_tables(self, experiment: str, group: Group) -> list[Table]:
        made = (make(experiment, group, self._results) for make in (group_table, network_table))
        return [table for table in made if table is not None]

    def _findings_section(self) -> Section:
        parts: list[Part] = []
        counts = []
        for group in self._results.groups:
            found = [item for item in self._findings if item.group == group.title]
            counts.append(f"{group.about}: {_count(found)}")
            parts.append(Details(f"Numbers: {group.about}", [finding_table(found, group.about)]))
        timed = [item for item in self._findings if item.timed]
        for device in dict.fromkeys(item.group for item in timed):
            found = [item for item in timed if item.group == device]
            counts.append(f"Run-times{f', {device}' if device else ''}: {_count(found)}")
        judged = [item for item in self._findings if item.table != SYSTEMS]
        matrix = finding_matrix(judged, self._results.groups)
        backbones = backbone_table(self._results)
        tables = [matrix, speed_table(timed), *([backbones] if backbones else [])]
        return Section("Findings", [Text(counts), *tables, *parts])

    def _coverage_section(self) -> Section:
        words = [self._coverage.sentence, _PUBLISHED_TEXT]
        if any(group.dataset == "mini-imagenet" for group in self._results.groups):
            words.append(_MINI_TEXT)
        words += [_BASELINE_TEXT, _INTERVAL_TEXT]
        tables = [coverage_table(self._coverage), missing_table(self._coverage)]
        return Section("What was measured", [Text(words), *tables])

    def _systems_section(self) -> Section:
        parts: list[Part] = [Text([_SYSTEMS_TEXT])]
        picture = _draw_systems(self._store, self._tables.get("table1"))
        if picture is not None:
            parts.append(picture)
        families, compared, numbers = self._system_tables()
        parts += [
            families,
            Details("Numbers: all systems", [numbers]),
            Details("Numbers: the order of the families", [compared]),
        ]
        return Section("Systems", parts)

    def _system_tables(self) -> tuple[Table, Table, Table]:
        found = [item for item in self._findings if item.table == SYSTEMS]
        comparisons = list(compare_families(self._results))
        return family_table(found), comparison_table(comparisons), system_table(self._results)

    def _section(self, name: str, figure: Picture | None) -> Section:
        title = f"{name[:-1].capitalize()} {name[-1]}: {EXPERIMENTS[name]}"
        if name == "figure1":
            return Section(title, [figure] if figure else [Text(["Not run."])])
        if name == "table5":
            times = self._store.extra.get("run_times", [])
            return Section(title, [time_table(times) if times else Text(["Not run."])])
        parts: list[Part] = [as_page_table(self._tables[name])]
        for group in self._results.groups:
            tables = self._group_tables(name, group)
            if tables:
                parts.append(Details(f"Numbers: {group.about}", tables))
        if len(parts) == 1:
            parts.insert(0, Text(["Not run: there are no features of this data set."]))
        return Section(title, parts)


def _count(found: Iterable[Finding]) -> str:
    """Return a sentence with the number of findings per verdict."""
    verdicts = [item.verdict for item in found]
    checked = [verdict for verdict in verdicts if verdict != NOT_RUN]
    if not checked:
        return "none of the paper's findings was checked."
    counts = ", ".join(f"{name}: {checked.count(name)}" for name in (HOLDS, FAILS, UNDECIDED))
    return f"{len(checked)} of {len(verdicts)} findings of the paper were checked ({counts})."


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


def _draw_systems(store: Store, table: PaperTable | None) -> Picture | None:
    """Draw the accuracies of Table 1 that were measured, best first, beside the published ones."""
    panels = []
    for column in table.columns if table else ():
        marks = list(table.marks(column)) if table else []
        if marks:
            panels.append((f"{DATASETS[column.dataset]}, {column.shots}-shot", marks))
    if not panels:
        return None
    png = store.folder / "systems.png"
    plot_systems(panels, [png, png.with_suffix(".svg")])
    best = "; ".join(
        f"{title}: {max(marks, key=lambda mark: mark.mean).label} is best"
        for title, marks in panels
    )
    return Picture(
        png.read_bytes(),
        alt=f"Accuracy of all methods and systems that ran, sorted. {best}.",
        caption=_SYSTEMS_NOTE,
    )


def _environment(plan: Plan, store: Store) -> Section:
    computed_on = Counter(map(_machine, store.rows.values()))
    row = next(iter(store.rows.values()), None)
    known = [] if row is None else [[key, str(value)] for key, value in row.environment.items()]
    features = [["features", _describe(file.source, store)] for file in store.files]
    features.append(["tasks", f"{QUERIES} queries per class, seed {plan.seed}"])
    if len(computed_on) > 1:
        parts = [f"{machine}: {n_rows:,} numbers" for machine, n_rows in computed_on.items()]
        features.append(["computed on", "; ".join([*parts, "the first of them below"])])
    return Section("Environment", [Table(["", ""], [*features, *known], "Environment of the run")])


def _describe(source: Source, store: Store) -> str:
    """Return name and digest of a feature file, and whether it was not given."""
    remark = "" if store.is_given(source) else "; not given, stored results"
    return f"{source.name} (sha256 {source.digest[:16]}...{remark})"


def _machine(row: ResultRow) -> str:
    """Return the GPU or the processor that computed a row."""
    about = row.environment
    processor = f"{about.get('processor', row.device)} ({about.get('cores', '?')} cores)"
    return str(about.get("gpu", row.device)) if row.device.startswith("cuda") else processor
