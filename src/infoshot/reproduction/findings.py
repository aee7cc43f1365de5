"""What the paper says about its method, judged on the results of a report.

A statement about accuracies consists of claims, which :mod:`infoshot.reproduction.verdicts` judges
for each data set and backbone. "Between 2% and 5% improvement over the best performing method", in
the abstract, is judged as at least 2 points above every other method that runs here. "Up to 10%
over entropy fine-tuning" is judged as at least 10 points at 1 shot. Statements about run times
compare single tasks.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infoshot.reproduction.network_groups import Group, Results
from infoshot.reproduction.paper import (
    ACCURACY_TABLES,
    ENT_MIN,
    FULL_LOSS,
    NOT_LINEARISED,
    PROBES,
    SHIFTED,
    TIM,
    WHOLE_NETWORK,
    Setting,
    probed_system,
    published_rows,
    published_value,
)
from infoshot.reproduction.verdicts import FAILS, HOLDS, NOT_RUN, Claim, judge

SYSTEMS = "systems"  # in the place of a table: findings about systems with their own training
_LEAST_GAIN = 2  # points over the best other method, of "between 2% and 5%"
_COLLAPSE = 10  # points that are lost without the marginal entropy
_ENT_MIN_TIME = "Ent-min {phi+W}"
# Statement, the slower method, the faster one, and how many times faster it is at least.
_SPEED: tuple[tuple[str, str, str, float], ...] = (
    ("TIM-ADM is at least 10 times faster than TIM-GD on a single task", "TIM-GD", "TIM-ADM", 10),
    ("TIM-GD is at least 10 times faster than Ent-min over {phi, W}", _ENT_MIN_TIME, "TIM-GD", 10),
    (
        "TIM-ADM is at least 100 times faster than Ent-min over {phi, W}",
        _ENT_MIN_TIME,
        "TIM-ADM",
        100,
    ),
    ("SimpleShot is faster than TIM-ADM", "TIM-ADM", "SimpleShot", 1),
    ("SimpleShot is at least 100 times faster than TIM-GD", "TIM-GD", "SimpleShot", 100),
)


@dataclass(frozen=True)
class Statement:
    """A statement of the paper; ``table`` is where its numbers are."""

    table: str
    text: str
    claims: tuple[Claim, ...]

    def concerns(self, group: Group) -> bool:
        """Whether it is about the domain shift where the group is, and not elsewhere."""
        return (self.table == "table2") == (group.dataset == SHIFTED)


@dataclass(frozen=True)
class Finding:
    """A statement of the paper with its verdict.

    Attributes
    ----------
    statement
        The statement.
    verdict
        ``holds``, ``does not hold``, ``undecided`` or ``not run``.
    numbers
        The accuracies or times behind the verdict.
    features
        Names of the feature files.
    timed
        Whether it is about run times, which differ from run to run.
    group
        Data set and backbone; for run times the device.
    published
        The differences or ratios in the paper, where it has them for this data set and backbone.
    table
        The table with the numbers of the statement, or ``systems``.
    """

    statement: str
    verdict: str
    numbers: str = ""
    features: str = ""
    timed: bool = False
    group: str = ""
    published: str = ""
    table: str = "table5"


def check_findings(results: Results, times: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Judge every statement on each group, and the speed on the measured run times."""
    found = []
    for group in results.groups:
        networks = results.accuracies(group)
        for statement in statements():
            if statement.concerns(group):
                verdict, numbers = judge(networks, statement.claims)
                found.append(
                    Finding(
                        statement.text,
                        verdict,
                        numbers,
                        group.files,
                        group=group.title,
                        published=_published_differences(statement, group),
                        table=statement.table,
                    )
                )
    files = results.groups[0].sources[0].name if results.groups else ""
    return (*found, *check_speed(times, files))


def statements() -> tuple[Statement, ...]:
    """Return all statements about accuracies, in the order of the paper's tables."""
    return tuple(
        statement
        for part in (_state_of_the_art, _domain_shift, _more_classes, _ablation, _fine_tuning)
        for statement in part()
    )


def check_speed(times: Sequence[Mapping[str, Any]], features: str = "") -> list[Finding]:
    """Judge the statements about run times on single tasks, on every device with run times."""
    devices = dict.fromkeys(entry["device"] for entry in times) or {"": None}
    found = []
    for (text, slow, fast, factor), device in itertools.product(_SPEED, devices):
        measured = {entry["method"]: entry for entry in times if entry["device"] == device}
        verdict, numbers = NOT_RUN, ""
        if {slow, fast} <= measured.keys():
            ratio = measured[slow]["alone_s"] / measured[fast]["alone_s"]
            verdict = HOLDS if ratio >= factor else FAILS
            numbers = f"{ratio:.1f} times"
            batched = [measured[name]["batched_s"] for name in (slow, fast)]
            if all(batched):
                numbers += f"; {batched[0] / batched[1]:.1f} times in a batch"
        printed = f"{_published_seconds(slow) / _published_seconds(fast):.1f} times"
        found.append(
            Finding(text, verdict, numbers, features, timed=True, group=device, published=printed)
        )
    return found


def _published_seconds(name: str) -> float:
    """Seconds per task in Table 5, by the names of our run times."""
    method = ENT_MIN[0] if name == _ENT_MIN_TIME else name
    return next(row.value for row in published_rows("table5") if row.method == method)


def _state_of_the_art() -> Iterator[Statement]:
    for method in TIM:
        for shots in (1, 5):
            text = f"{shots}-shot: {method} is above SimpleShot and LaplacianShot"
            yield Statement(
                "table1", text, _above(method, ("SimpleShot", "LaplacianShot"), shots=(shots,))
            )
    others = ("SimpleShot", "BD-CSPN", "LaplacianShot")
    for method in TIM:
        for shots in (1, 5):
            yield Statement(
                "table1",
                f"{shots}-shot: {method} is at least 2 points above the best other method "
                "(SimpleShot, BD-CSPN, LaplacianShot)",
                _above(method, others, shots=(shots,), margin=_LEAST_GAIN),
            )


def _domain_shift() -> Iterator[Statement]:
    others = ("SimpleShot", "Baseline", "LaplacianShot")
    for method in TIM:
        for margin, how in ((0, "above"), (_LEAST_GAIN, "at least 2 points above")):
            yield Statement(
                "table2",
                f"5-shot: {method} is {how} SimpleShot, Baseline and LaplacianShot",
                _above(method, others, shots=(5,), margin=margin),
            )


def _more_classes() -> Iterator[Statement]:
    others = ("SimpleShot", "Baseline", "Baseline++")
    for method in TIM:
        for ways in (10, 20):
            for margin, how in ((0, "above"), (_LEAST_GAIN, "at least 2 points above")):
                yield Statement(
                    "table3",
                    f"{ways}-way, 1- and 5-shot: {method} is {how} SimpleShot, Baseline and "
                    "Baseline++",
                    _above(method, others, ways=ways, shots=(1, 5), margin=margin),
                )


def _above(
    method: str, others: Sequence[str], *, ways: int = 5, shots: Sequence[int], margin: float = 0
) -> tuple[Claim, ...]:
    """Claim that a method is above others; systems with their own training run as probes."""
    return tuple(
        Claim(
            (method, "", "", ways, n_shot), (PROBES.get(other, other), "", "", ways, n_shot), margin
        )
        for n_shot in shots
        for other in others
    )


def _ablation() -> Iterator[Statement]:
    order = (FULL_LOSS, "CE-H(Y)", "CE", "CE+H(Y|X)")
    for method in TIM:
        losses = [_full(method, "W", 1, loss) for loss in order]
        yield Statement(
            "table4",
            f"1-shot: {method} over W: {' > '.join(order)}",
            tuple(Claim(*pair) for pair in itertools.pairwise(losses)),
        )
        yield Statement(
            "table4",
            f"1-shot: {method} over W without the marginal entropy is at least 10 points below CE",
            (Claim(losses[2], losses[3], _COLLAPSE),),
        )
    for method, parameters, shots in (
        *((method, "W", 5) for method in TIM),
        ("TIM-GD", WHOLE_NETWORK, 1),
        ("TIM-GD", WHOLE_NETWORK, 5),
    ):
        best = _full(method, parameters, shots)
        yield Statement(
            "table4",
            f"{shots}-shot: {method} over {_over(parameters)} is best with the full loss",
            tuple(Claim(best, _full(method, parameters, shots, loss)) for loss in order[1:]),
        )
    for shots in (1, 5):
        adm, gd = (_full(method, "W", shots) for method in TIM)
        text = f"{shots}-shot: TIM-ADM and TIM-GD are within 1 point of each other"
        yield Statement("table4", text, (Claim(adm, gd, -1), Claim(gd, adm, -1)))
    for shots in (1, 5):
        text = f"{shots}-shot: TIM-ADM is less accurate without its linearised term"
        claim = Claim(_full("TIM-ADM", "W", shots), _full("TIM-ADM", "W", shots, NOT_LINEARISED))
        yield Statement("table4", text, (claim,))


def _fine_tuning() -> Iterator[Statement]:
    for shots in (1, 5):
        text = f"{shots}-shot: fine-tuning the whole network does not beat W alone"
        claim = Claim(_full("TIM-GD", "W", shots), _full("TIM-GD", WHOLE_NETWORK, shots))
        yield Statement("table4", text, (claim,))
    for shots in (1, 5):
        without, plain = (
            _full("TIM-GD", WHOLE_NETWORK, shots, loss) for loss in ("CE+H(Y|X)", "CE")
        )
        yield Statement(
            "table4",
            f"{shots}-shot: TIM-GD over {_over(WHOLE_NETWORK)} without the marginal entropy is "
            "less than 10 points below CE",
            (Claim(without, plain, -_COLLAPSE),),
        )
    for shots, margin, how in ((1, 10, "at least 10 points above"), (5, 0, "above")):
        yield Statement(
            "table1",
            f"{shots}-shot: TIM-GD is {how} entropy fine-tuning (Ent-min)",
            (Claim(_full("TIM-GD", "W", shots), (*ENT_MIN, 5, shots), margin),),
        )


def _full(method: str, parameters: str, shots: int, loss: str = FULL_LOSS) -> Setting:
    """Return a setting of the ablation, by default with the full loss."""
    return method, parameters, loss, 5, shots


def _over(parameters: str) -> str:
    return "{phi, W}" if parameters == WHOLE_NETWORK else parameters


def _published_differences(statement: Statement, group: Group) -> str:
    """Return what the paper has for each pair of a statement; empty if it has none."""
    shown: dict[frozenset[Setting], str] = {}
    for claim in statement.claims:
        above, below = (_published(setting, group) for setting in (claim.above, claim.below))
        difference = f"{above - below:+.1f}" if above is not None and below is not None else "-"
        shown.setdefault(frozenset((claim.above, claim.below)), difference)
    return ", ".join(shown.values()) if set(shown.values()) != {"-"} else ""


def _published(setting: Setting, group: Group) -> float | None:
    name, parameters, loss, ways, shots = setting
    name = probed_system(name)
    alternatives: list[Setting] = [(name, parameters, loss, ways, shots)]
    if (parameters, loss) == ("W", FULL_LOSS):
        alternatives.append((name, "", "", ways, shots))
    for table in ACCURACY_TABLES:
        for one in alternatives:
            value = published_value(table, one, group.dataset, group.backbone)
            if value is not None:
                return value
    return None
