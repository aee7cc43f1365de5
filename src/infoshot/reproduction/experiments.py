"""The paper's experiments as data: the cells of its tables that can be run on features.

Names are the paper's: ``table1`` state of the art, ``table2`` domain shift, ``table3`` more
classes, ``table4`` ablation, ``table5`` run-times, ``figure1`` convergence. A cell says what is run
and under which name the paper reports it; what was published is in ``published.csv``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infoshot.reproduction.published import Published, published_rows
from infoshot.solvers import METHODS, Method

EXPERIMENTS = {
    "table1": "Comparison to the state of the art",
    "table2": "Domain shift: from mini-ImageNet to CUB",
    "table3": "More classes",
    "table4": "Ablation of the loss",
    "table5": "Run-times",
    "figure1": "Convergence",
}
QUERIES = 15
LOSSES: Mapping[str, Mapping[str, float]] = {
    "CE": {"marginal_entropy_weight": 0.0, "conditional_entropy_weight": 0.0},
    "CE+H(Y|X)": {"marginal_entropy_weight": 0.0},
    "CE-H(Y)": {"conditional_entropy_weight": 0.0},
    "CE-H(Y)+H(Y|X)": {},
}
FULL_LOSS = "CE-H(Y)+H(Y|X)"
WHOLE_NETWORK = "phi+W"
NOT_LINEARISED = "CE-H(Y)+H(Y|X), not linearised"
# Methods that take hundreds of gradient steps: fewer tasks on a CPU.
GRADIENT = frozenset({"tim-gd", "baseline", "baseline++"})

_TABLE1 = {
    "Prototype": "prototype",
    "SimpleShot": "simpleshot",
    "BD-CSPN": "bd-cspn",
    "LaplacianShot": "laplacianshot",
    "TIM-ADM": "tim-adm",
    "TIM-GD": "tim-gd",
    "tim-auto (ours)": "tim-auto",
}
_TABLE2 = ("SimpleShot", "Baseline", "LaplacianShot", "TIM-ADM", "TIM-GD")
_TABLE3 = ("SimpleShot", "Baseline", "Baseline++", "TIM-ADM", "TIM-GD")
_RUN = {**_TABLE1, "Baseline": "baseline", "Baseline++": "baseline++"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of one table.

    ``paper_method`` is the name in the paper, ``run`` the method of ours with ``settings`` changed.
    """

    experiment: str
    paper_method: str
    run: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: str = ""
    loss: str = ""
    ways: int = 5
    shots: int = 1

    @property
    def over_network(self) -> bool:
        """Whether the network is fine-tuned too, on images."""
        return self.parameters == WHOLE_NETWORK

    @property
    def assumes(self) -> tuple[str, ...]:
        """What the method takes for granted; balance only where the marginal entropy is on."""
        if self.settings.get("marginal_entropy_weight") == 0:
            return ()
        return METHODS[self.run].assumes

    def method(self) -> Method:
        """The method over the class weights, with the settings of the cell."""
        return METHODS[self.run].with_settings(self.settings)

    def published(self, dataset: str, backbone: str) -> float | None:
        """What the paper reports for this data set and backbone, if it does."""
        for row in published_rows(self.experiment):
            if self._is(row) and (row.dataset, row.backbone) == (dataset, backbone):
                return row.value
        return None

    def _is(self, row: Published) -> bool:
        return (row.method, row.parameters, row.loss, row.ways, row.shots) == (
            self.paper_method,
            self.parameters,
            self.loss,
            self.ways,
            self.shots,
        )


def cells(experiment: str) -> list[Cell]:
    """The cells of an experiment, in the paper's order; none for run-times and figures."""
    return {
        "table1": [
            Cell(experiment="table1", paper_method=name, run=run, shots=shots)
            for name, run in _TABLE1.items()
            for shots in (1, 5)
        ],
        "table2": [
            Cell(experiment="table2", paper_method=name, run=_RUN[name], shots=5)
            for name in _TABLE2
        ],
        "table3": [
            Cell(experiment="table3", paper_method=name, run=_RUN[name], ways=ways, shots=shots)
            for name in _TABLE3
            for ways in (10, 20)
            for shots in (1, 5)
        ],
        "table4": list(_ablation()),
    }.get(experiment, [])


def _ablation() -> Iterator[Cell]:
    """The loss terms of both solvers over the classifier weights."""
    for name, run in (("TIM-ADM", "tim-adm"), ("TIM-GD", "tim-gd")):
        losses: dict[str, Mapping[str, Any]] = dict(LOSSES)
        if run == "tim-adm":
            losses[NOT_LINEARISED] = {"linearized": False}
        for loss, settings in losses.items():
            # Without entropies the paper's TIM-ADM is the class mean.
            plain = run == "tim-adm" and loss == "CE"
            for shots in (1, 5):
                yield Cell(
                    experiment="table4",
                    paper_method=name,
                    run="prototype" if plain else run,
                    settings={} if plain else settings,
                    parameters="W",
                    loss=loss,
                    shots=shots,
                )
    yield from _whole_network()


def _whole_network() -> Iterator[Cell]:
    """The same losses over the whole network, and entropy minimisation as the paper compares it."""
    rows: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("TIM-GD", "tim-gd", loss, settings) for loss, settings in LOSSES.items()
    ]
    equal = {"cross_entropy_weight": 1.0, "conditional_entropy_weight": 1.0}
    rows.append(("Ent-min", "ent-min", "CE+H(Y|X)", {**LOSSES["CE+H(Y|X)"], **equal}))
    for name, run, loss, settings in rows:
        for shots in (1, 5):
            yield Cell(
                experiment="table4",
                paper_method=name,
                run=run,
                settings=settings,
                parameters=WHOLE_NETWORK,
                loss=loss,
                shots=shots,
            )
