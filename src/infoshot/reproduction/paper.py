"""The paper as data: its experiments and the numbers it prints.

Experiments have the paper's names: ``table1`` state of the art, ``table2`` domain shift, ``table3``
more classes, ``table4`` ablation, ``table5`` run times, ``figure1`` convergence. A :class:`Cell` is
one number of a table. The printed numbers are in ``published.csv``. What the paper says about them
is in ``findings``.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from infoshot.core import checks
from infoshot.reproduction.paper_systems import (
    SystemForm,
    printed_names,
    systems_of_recipe,
)
from infoshot.solvers import METHODS, Method

EXPERIMENTS = {
    "table1": "Comparison to the state of the art",
    "table2": "Domain shift: from mini-ImageNet to CUB",
    "table3": "More classes",
    "table4": "Ablation of the loss",
    "table5": "Run-times",
    "figure1": "Convergence",
}
ACCURACY_TABLES = ("table1", "table2", "table3", "table4")
"""The tables of accuracies."""
DATASETS = {
    "mini-imagenet": "mini-ImageNet",
    "tiered-imagenet": "tiered-ImageNet",
    "cub": "CUB",
    "mini-to-cub": "mini-ImageNet to CUB",
    "folder": "own images",
}
BACKBONES = {
    "resnet10": "ResNet-10",
    "resnet12": "ResNet-12",
    "resnet18": "ResNet-18",
    "wrn28-10": "WRN28-10",
    "conv4": "Conv-4",
    "efficientnet-lite0": "EfficientNet-Lite0",
}
SHIFTED, OWN_IMAGES = "mini-to-cub", "folder"
SHIFT = ("mini-imagenet", "cub")  # what the network was trained on, and the images
QUERIES = 15
LOSSES: Mapping[str, Mapping[str, float]] = {
    "CE": {"marginal_entropy_weight": 0.0, "conditional_entropy_weight": 0.0},
    "CE+H(Y|X)": {"marginal_entropy_weight": 0.0},
    "CE-H(Y)": {"conditional_entropy_weight": 0.0},
    "CE-H(Y)+H(Y|X)": {},
}
FULL_LOSS = "CE-H(Y)+H(Y|X)"
WHOLE_NETWORK = "phi+W"
TIM = ("TIM-ADM", "TIM-GD")
ENT_MIN = ("Ent-min", WHOLE_NETWORK, "CE+H(Y|X)")
"""Method, parameters and loss of entropy minimisation in Table 1."""
Setting = tuple[str, str, str, int, int]
"""Method, parameters, loss, ways and shots: what identifies a number of a data set and backbone."""
NOT_LINEARISED = "CE-H(Y)+H(Y|X), not linearised"

_TABLE1 = {
    "Prototype": "prototype",
    "SimpleShot": "simpleshot",
    "BD-CSPN": "bd-cspn",
    "LaplacianShot": "laplacianshot",
    "TIM-ADM": "tim-adm",
    "TIM-GD": "tim-gd",
    "tim-auto (ours)": "tim-auto",
}
PROBES = {
    "Baseline": "Baseline: linear probe (Adam)",
    "Baseline++": "Baseline++: cosine probe (Adam)",
}
"""Rows of classifiers on the shared network, in the place of systems with their own training."""
_TABLE2 = ("SimpleShot", PROBES["Baseline"], "LaplacianShot", "TIM-ADM", "TIM-GD")
_TABLE3 = ("SimpleShot", *PROBES.values(), "TIM-ADM", "TIM-GD")
_RETRIED = {
    "TIM-ADM, diverged tasks again (ours)": replace(
        METHODS["tim-adm"], name="tim-adm-retried", retry=True
    )
}
"""A row of Table 3, whose tasks diverge often: these are solved again with smaller steps."""
PAPER_METHODS = {**_TABLE1, **{PROBES[name]: name.lower() for name in PROBES}}


def probed_system(name: str) -> str:
    """Return the name of the system in whose place a probe runs; other names are unchanged."""
    return next((printed for printed, probe in PROBES.items() if probe == name), name)


@dataclass(frozen=True, kw_only=True)
class Published:
    """One number of the paper: an accuracy in percent, or seconds per task in ``table5``.

    Only Table 1 and the run times state which methods are transductive. In the other tables TIM
    and LaplacianShot count as transductive and all other methods as inductive.

    Attributes
    ----------
    table
        The experiment, such as ``table1``.
    method
        The name as printed, so "Neg-cosine" in one table is "Neg-Cosine" in another.
    dataset
        The data set of the tasks. ``mini-to-cub`` are tasks from CUB with a network trained on
        mini-ImageNet.
    parameters
        The parameters that a task adapts, ``W`` or ``phi+W``; empty where the table does not say.
    loss
        The terms of the objective, in the ablation only; empty elsewhere.
    """

    table: str
    method: str
    backbone: str
    transductive: bool
    dataset: str
    parameters: str
    loss: str
    ways: int
    shots: int
    value: float

    @property
    def setting(self) -> Setting:
        """The setting whose accuracy this is, such as the ablation's Ent-min for Table 1."""
        if self.method == ENT_MIN[0]:
            return (*ENT_MIN, self.ways, self.shots)
        return self.method, self.parameters, self.loss, self.ways, self.shots


def comparable_dataset(dataset: str, trained_on: str) -> str:
    """Return the data set whose published numbers features compare with; empty if none does.

    Parameters
    ----------
    dataset
        The data set of the images.
    trained_on
        The data set that the network was trained on; empty if unknown.

    Examples
    --------
    >>> comparable_dataset("cub", "mini-imagenet"), comparable_dataset("cub", "cub")
    ('mini-to-cub', 'cub')
    """
    if trained_on in ("", dataset) or dataset == OWN_IMAGES:
        return dataset
    return SHIFTED if (trained_on, dataset) == SHIFT else ""


def published_rows(table: str | None = None) -> tuple[Published, ...]:
    """Return all printed numbers, or those of one table, in the order of the paper.

    Examples
    --------
    >>> [(row.method, row.value) for row in published_rows("table5")][:2]
    [('SimpleShot', 0.009), ('TIM-ADM', 0.12)]
    """
    rows = _all_rows()
    if table is None:
        return rows
    checks.one_of("table", table, list(dict.fromkeys(row.table for row in rows)))
    return tuple(row for row in rows if row.table == table)


def published_value(table: str, setting: Setting, dataset: str, backbone: str) -> float | None:
    """Return one printed number, if the paper has it."""
    return _by_setting().get((table, setting, dataset, backbone))


def has_published(table: str, dataset: str) -> bool:
    """Return whether a table of the paper has numbers of a data set.

    Examples
    --------
    >>> has_published("table3", "mini-imagenet"), has_published("table3", "cub")
    (True, False)
    """
    return any(row.dataset == dataset for row in published_rows(table))


def printed_backbone(table: str, method: str, backbone: str) -> str:
    """Return the backbone of the row in which a table shows a number of another backbone.

    It is the backbone itself if the table has it for this method, else one of the same family, else
    the first one. Empty if the table does not have the method.

    Examples
    --------
    >>> [printed_backbone("table1", "MatchNet", name) for name in ("wrn28-10", "resnet12")]
    ['wrn28-10', 'resnet18']
    """
    rows = [row for row in published_rows(table) if row.method == method]
    printed = list(dict.fromkeys(row.backbone for row in rows))
    alike = [name for name in printed if backbone_family(name) == backbone_family(backbone)]
    return next(iter([backbone] * (backbone in printed) + alike + printed), "")


def backbone_family(backbone: str) -> str:
    """Return the kind of a network: all ResNets are of one, as in the paper's Table 1."""
    return "ResNets" if backbone.startswith("resnet") else BACKBONES.get(backbone, backbone)


@cache
def _by_setting() -> dict[tuple[str, Setting, str, str], float]:
    return {(row.table, row.setting, row.dataset, row.backbone): row.value for row in _all_rows()}


@cache
def _all_rows() -> tuple[Published, ...]:
    text = (resources.files("infoshot.reproduction") / "published.csv").read_text(encoding="utf-8")
    rows = []
    for line in csv.DictReader(text.splitlines()):
        numbers = {"ways": int(line["ways"]), "shots": int(line["shots"])}
        fields: dict[str, Any] = {**line, **numbers, "value": float(line["value"])}
        rows.append(Published(**{**fields, "transductive": line["transductive"] == "yes"}))
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of one table.

    ``name`` is the name in the table: the paper's, or that of a method which the paper does not
    have. ``run`` is the method that computes the number, with ``settings`` changed, or the form of
    a system that was trained.
    """

    experiment: str
    name: str
    run: Method | SystemForm
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: str = ""
    loss: str = ""
    ways: int = 5
    shots: int = 1

    @property
    def setting(self) -> Setting:
        """What identifies the number among those of a data set and backbone."""
        return self.name, self.parameters, self.loss, self.ways, self.shots

    @property
    def over_network(self) -> bool:
        """Whether each task fine-tunes the network too, which needs images."""
        return self.parameters == WHOLE_NETWORK

    @property
    def assumes(self) -> tuple[str, ...]:
        """Assumptions of the method; without the marginal entropy it does not assume balance."""
        if self.settings.get("marginal_entropy_weight") == 0:
            return ()
        return self.run.assumes

    def method(self) -> Method:
        """Return the method over the class weights, with the settings of the cell."""
        assert isinstance(self.run, Method)
        return self.run.with_settings(self.settings) if self.settings else self.run

    def published(self, dataset: str, backbone: str) -> float | None:
        """Return what the paper reports for this data set and backbone, if it does.

        For a probe it is the number of the system in whose place it runs.
        """
        _, *rest = self.setting
        setting: Any = (probed_system(self.name), *rest)
        return published_value(self.experiment, setting, dataset, backbone)


def cells(experiment: str, methods: Sequence[Method] = ()) -> list[Cell]:
    """Return the cells of an experiment in the paper's order; none for run times and figures.

    Tables 1 to 3 compare methods, so ``methods`` that the paper does not have are added there.
    """
    if experiment == "table4":
        return [*_ablation(), *_ablation_over_network()]
    compared = {"table1": tuple(_TABLE1), "table2": _TABLE2, "table3": _TABLE3}.get(experiment)
    if compared is None:
        return []
    rows: dict[str, Method | SystemForm] = {name: METHODS[PAPER_METHODS[name]] for name in compared}
    rows |= _RETRIED if experiment == "table3" else {}
    rows |= {method.name: method for method in methods}
    over_network = _entropy_minimisation() if experiment == "table1" else ()
    return [*_rows(experiment, rows), *over_network]


def recipe_cells(experiment: str, recipe: str, methods: Sequence[Method] = ()) -> list[Cell]:
    """Return the cells that features of a recipe of base training fill, in one of Tables 1 to 3.

    These are the rows of systems with this recipe, where the table prints them, and those of added
    methods.
    """
    rows: dict[str, Method | SystemForm] = {
        name: METHODS[system.method]
        for system in systems_of_recipe(recipe)
        for name in system.printed
        if name in _printed_names(experiment)
    }
    rows |= {method.name: method for method in methods}
    return _rows(experiment, rows)


def system_cells(experiment: str, forms: Sequence[SystemForm]) -> list[Cell]:
    """Return the cells of a trained system in one of Tables 1 to 3.

    Table 3 has the systems that the paper prints there only.
    """
    rows: dict[str, Method | SystemForm] = {}
    for form in forms:
        names = [*printed_names(form.name), form.title or form.name]
        printed = [name for name in names if name in _printed_names(experiment)]
        if printed or experiment != "table3":
            rows[(printed or names)[0]] = form
    return _rows(experiment, rows)


@cache
def _printed_names(experiment: str) -> frozenset[str]:
    return frozenset(row.method for row in _all_rows() if row.table == experiment)


def _rows(experiment: str, rows: Mapping[str, Method | SystemForm]) -> list[Cell]:
    """Return a cell for each row and each kind of task of Table 1, 2 or 3."""
    if experiment not in ("table1", "table2", "table3"):
        return []
    return [
        Cell(experiment=experiment, name=name, run=run, ways=ways, shots=shots)
        for name, run in rows.items()
        for ways in ((10, 20) if experiment == "table3" else (5,))
        for shots in ((5,) if experiment == "table2" else (1, 5))
    ]


def _ablation() -> Iterator[Cell]:
    """Return the loss terms of both solvers over the classifier weights."""
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
                    name=name,
                    run=METHODS["prototype" if plain else run],
                    settings={} if plain else settings,
                    parameters="W",
                    loss=loss,
                    shots=shots,
                )


def _ablation_over_network() -> Iterator[Cell]:
    """Return the same losses over the whole network."""
    for loss, settings in LOSSES.items():
        for shots in (1, 5):
            yield Cell(
                experiment="table4",
                name="TIM-GD",
                run=METHODS["tim-gd"],
                settings=settings,
                parameters=WHOLE_NETWORK,
                loss=loss,
                shots=shots,
            )


def _entropy_minimisation() -> Iterator[Cell]:
    """Return the competitor that fine-tunes the whole network."""
    name, parameters, loss = ENT_MIN
    for shots in (1, 5):
        yield Cell(
            experiment="table1",
            name=name,
            run=METHODS["ent-min"],
            parameters=parameters,
            loss=loss,
            shots=shots,
        )
