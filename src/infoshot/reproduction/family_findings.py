"""The order of the families in the paper's Table 1, judged on systems that train their own network.

Two systems have different networks, so that only the tasks are paired: task i consists of the same
images for both. If a system has several networks, every network of one is compared with every
network of the other by the 95% interval of the mean difference over tasks, and all these verdicts
must agree. A system is compared with methods on the network of plain base training of its own
backbone or, where there is none, of the same family (ResNets).
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from infoshot.benchmark import with_interval
from infoshot.metrics import mean_interval
from infoshot.reproduction.findings import SYSTEMS, Finding
from infoshot.reproduction.network_groups import Group, Results
from infoshot.reproduction.paper import (
    BACKBONES,
    DATASETS,
    TIM,
    Setting,
    backbone_family,
    published_rows,
)
from infoshot.reproduction.paper_systems import adds_queries, system_of
from infoshot.reproduction.verdicts import FAILS, HOLDS, UNDECIDED

_SIMPLE = ("SimpleShot", "Distill")
_FEW = 3  # systems that are named although a statement holds for them
_Pair = tuple[str, str, "Contender", "Contender", int]


@dataclass(frozen=True)
class Contender:
    """A row of Table 1 that ran on one group of networks, by its name in the table."""

    name: str
    form: str
    group: Group
    transductive: bool
    meta: bool


@dataclass(frozen=True)
class Comparison:
    """The difference between a system and another one that the statement puts above or below it.

    Attributes
    ----------
    kind, relation
        The statement: ``meta-learning`` is ``below SimpleShot``.
    subject, other
        Both contenders.
    shots
        Shots of the tasks.
    intervals
        For every pair of networks the mean difference in points and half of its interval; positive
        where it agrees with the statement.
    """

    kind: str
    relation: str
    subject: Contender
    other: Contender
    shots: int
    intervals: tuple[tuple[float, float], ...]

    @property
    def verdict(self) -> str:
        """Whether all pairs of networks agree with the statement."""
        verdicts = {_verdict(*interval) for interval in self.intervals}
        return verdicts.pop() if len(verdicts) == 1 else UNDECIDED

    @property
    def text(self) -> str:
        """The system with the difference, and both backbones where they differ."""
        backbone, other = (
            BACKBONES.get(one.group.backbone, one.group.backbone)
            for one in (self.subject, self.other)
        )
        against = "" if backbone == other else f" against {other}"
        return f"{self.subject.name} ({backbone}{against}) {self.difference}"

    @property
    def difference(self) -> str:
        """The difference with its interval, or the mean and the range over pairs of networks."""
        if len(self.intervals) == 1:
            return with_interval(*self.intervals[0])
        means = [mean for mean, _ in self.intervals]
        return f"{statistics.fmean(means):.2f} ({min(means):.2f} to {max(means):.2f})"


def check_families(results: Results) -> tuple[Finding, ...]:
    """Judge the order of families on every data set on which a system ran.

    Statements about systems that did not run are left out.
    """
    by_statement: dict[tuple[str, int, str], list[Comparison]] = {}
    for one in compare_families(results):
        dataset = one.subject.group.dataset
        statement = f"{one.kind} is {one.relation}"
        by_statement.setdefault((dataset, one.shots, statement), []).append(one)
    return tuple(
        Finding(
            f"{shots}-shot: {statement}",
            next(v for v in (FAILS, UNDECIDED, HOLDS) if v in {one.verdict for one in found}),
            _summary(found),
            group=DATASETS.get(dataset, dataset),
            table=SYSTEMS,
        )
        for (dataset, shots, statement), found in by_statement.items()
    )


def compare_families(results: Results) -> Iterator[Comparison]:
    """Yield every comparison that the results allow, by data set and shots."""
    for dataset in dict.fromkeys(group.dataset for group in results.systems):
        ran = list(_contenders(results, dataset))
        for shots in (1, 5):
            for kind, relation, subject, other, sign in (*_order(ran), *_gains(ran)):
                intervals = tuple(_intervals(results, subject, other, shots, sign))
                if intervals:
                    yield Comparison(kind, relation, subject, other, shots, intervals)


def _contenders(results: Results, dataset: str) -> Iterator[Contender]:
    """Yield what ran on 5-way tasks of a data set, each row once for a group."""
    printed = {row.method: row.transductive for row in published_rows("table1")}
    for group in (*results.groups, *results.systems):
        digests, seen = {source.digest for source in group.sources}, set[str]()
        for item in results.planned if group.dataset == dataset else ():
            cell = item.cell
            is_new = item.source.digest in digests and cell.name not in seen
            if is_new and cell.ways == 5 and not cell.parameters and results.is_stored(item):
                seen.add(cell.name)
                system = system_of(cell.name)
                meta = group in results.systems and (system is None or system.meta)
                transductive = printed.get(cell.name, cell.run.transductive)
                yield Contender(cell.name, cell.run.name, group, transductive, meta)


def _order(ran: Sequence[Contender]) -> Iterator[_Pair]:
    """Yield pairs whose second contender is to be above: meta-learning, simple methods, TIM."""
    meta = [one for one in ran if one.meta]
    simple = [one for one in ran if one.name in _SIMPLE]
    for name in _SIMPLE:
        for one in (one for one in meta if not one.transductive):
            for other in _alike(one, ran, name):
                yield "inductive meta-learning", f"below {name}", one, other, 1
    for method in TIM:
        for kind, family in (("SimpleShot or Distill", simple), ("meta-learning", meta)):
            for one in family:
                for other in _alike(one, ran, method):
                    yield kind, f"below {method}", one, other, 1


def _gains(ran: Sequence[Contender]) -> Iterator[_Pair]:
    """Yield pairs whose first contender is to be above: confident queries, training on episodes."""
    for one in ran:
        for other in ran:
            if one.group == other.group and adds_queries(one.form, other.form):
                yield (
                    "a system with confident queries (+T)",
                    "above the one without",
                    one,
                    other,
                    -1,
                )
    for one in (one for one in ran if one.name == "ProtoNet"):
        for other in _alike(one, ran, "Prototype"):
            yield "ProtoNet", "above prototypes of base training", one, other, -1


def _alike(one: Contender, ran: Sequence[Contender], name: str) -> list[Contender]:
    """Return the contender of a name with the backbone of another one, or of its family."""
    named = [other for other in ran if other.name == name]
    same = [other for other in named if other.group.backbone == one.group.backbone]
    family = backbone_family(one.group.backbone)
    return (same or [o for o in named if backbone_family(o.group.backbone) == family])[:1]


def _intervals(
    results: Results, subject: Contender, other: Contender, shots: int, sign: int
) -> Iterator[tuple[float, float]]:
    """Yield the interval over tasks of each pair of networks that saw the same images."""
    same_group = subject.group == other.group
    for images, digest, of_subject in _networks(results, subject, shots):
        for other_images, other_digest, of_other in _networks(results, other, shots):
            is_pair = digest == other_digest if same_group else images == other_images != ""
            if is_pair:
                n_tasks = min(len(of_subject), len(of_other))
                difference = of_other[:n_tasks].double() - of_subject[:n_tasks].double()
                yield mean_interval(100 * sign * difference)


def _networks(results: Results, one: Contender, shots: int) -> Iterator[tuple[str, str, Tensor]]:
    """Yield the images, the digest and the accuracies of all tasks of each network."""
    setting: Setting = (one.name, "", "", 5, shots)
    for source, accuracies in zip(one.group.sources, results.accuracies(one.group), strict=True):
        if setting in accuracies:
            yield source.images, source.digest, accuracies[setting]


def _verdict(mean: float, half_width: float) -> str:
    if mean - half_width > 0:
        return HOLDS
    return FAILS if mean + half_width < 0 else UNDECIDED


def _summary(found: Sequence[Comparison]) -> str:
    """Return for how many systems a statement holds, and which are the others."""
    parts = []
    for verdict in (HOLDS, FAILS, UNDECIDED):
        texts = [one.text for one in found if one.verdict == verdict]
        if texts:
            shown = ", ".join(texts if verdict != HOLDS or len(texts) <= _FEW else ())
            count = f"{verdict} for {len(texts)} of {len(found)}"
            parts.append(f"{count}: {shown}" if shown else count)
    return "; ".join(parts)
