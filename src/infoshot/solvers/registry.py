"""The methods by name, each with what its caller must know: preparation, assumptions, cost."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.solvers.baselines.baseline import Baseline
from infoshot.solvers.baselines.baseline_plus_plus import BaselinePlusPlus
from infoshot.solvers.baselines.bd_cspn import BdCspn
from infoshot.solvers.baselines.label_propagation import LabelPropagation
from infoshot.solvers.baselines.laplacianshot import LaplacianShot
from infoshot.solvers.baselines.matching import Matching
from infoshot.solvers.baselines.oslo import Oslo
from infoshot.solvers.baselines.ostim import Ostim
from infoshot.solvers.baselines.paddle import Paddle
from infoshot.solvers.baselines.prototype import Prototype
from infoshot.solvers.baselines.pt_map import PtMap
from infoshot.solvers.baselines.soft_kmeans import SoftKMeans
from infoshot.solvers.solver import Solver
from infoshot.solvers.tim_adm import TimAdm
from infoshot.solvers.tim_auto import TimAuto
from infoshot.solvers.tim_gd import TimGd

Preparation = Literal["l2", "centred-l2", "power-l2"]
Assumption = Literal[
    "base-mean", "balance", "all-classes", "class-counts", "few-classes", "open-set"
]

ASSUMPTIONS: Mapping[Assumption, str] = {
    "base-mean": "the mean feature of the base classes is known",
    "balance": "about as many queries of every class",
    "all-classes": "queries of every class, not necessarily as many",
    "class-counts": "is given how many queries each class has: by default all equal",
    "few-classes": "few of the classes occur among the queries",
    "open-set": "queries may belong to none of the classes",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A solver with its published settings and what its caller must know.

    ``preparation`` is what the features need first: ``"l2"`` unit length, ``"centred-l2"`` minus
    the base classes' mean, then unit length, ``"power-l2"`` square roots, then unit length. A
    ``transductive`` method looks at all queries together, so that their number and balance matter.
    An ``inductive`` one leaves class weights that classify samples it has not seen.
    """

    name: str
    solver: Solver[Any]
    preparation: Preparation = "l2"
    transductive: bool = True
    inductive: bool = False
    assumes: tuple[Assumption, ...] = ()
    summary: str
    cost: str

    @property
    def expects_balance(self) -> bool:
        """Whether queries of unequal class frequencies, or very few of them, do harm."""
        return bool({"balance", "all-classes", "class-counts"} & set(self.assumes))

    def with_settings(self, settings: Mapping[str, Any]) -> "Method":
        """Return the method with some hyperparameters changed."""
        known = list(self.solver.settings())
        for name in settings:
            if name not in known:
                raise InvalidArgumentError(unknown_name(f"setting of {self.name}", name, known))
        solver = self.solver.with_settings(**settings)
        solver.validate()
        return dataclasses.replace(self, solver=solver)


_ALL = (
    Method(
        name="prototype",
        solver=Prototype(),
        transductive=False,
        inductive=True,
        summary="nearest class mean",
        cost="one product, Q K d",
    ),
    Method(
        name="shrunken-prototype",
        solver=Prototype(shrinkage=5.0, temperature=100.0),
        transductive=False,
        inductive=True,
        summary="nearest class mean, each pulled towards the mean of all of them",
        cost="one product, Q K d",
    ),
    Method(
        name="simpleshot",
        solver=Prototype(),
        preparation="centred-l2",
        transductive=False,
        assumes=("base-mean",),
        summary="nearest class mean of features centred on the base classes",
        cost="one product, Q K d",
    ),
    Method(
        name="matching",
        solver=Matching(),
        transductive=False,
        summary="labelled samples vote, the nearer the more",
        cost="one product, Q S d",
    ),
    Method(
        name="baseline",
        solver=Baseline(),
        transductive=False,
        inductive=True,
        summary="linear classifier fitted to the support",
        cost="100 steps of 2 K S d",
    ),
    Method(
        name="baseline++",
        solver=BaselinePlusPlus(),
        transductive=False,
        inductive=True,
        summary="cosine classifier fitted to the support",
        cost="100 steps of 2 K S d",
    ),
    Method(
        name="ent-min",
        solver=TimGd(
            marginal_entropy_weight=0.0, cross_entropy_weight=1.0, conditional_entropy_weight=1.0
        ),
        inductive=True,
        summary="confident predictions, without a term for the class balance",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="label-propagation",
        solver=LabelPropagation(),
        summary="labels spread over the graph of nearest neighbours",
        cost="N N d, and N N N / 3",
    ),
    Method(
        name="bd-cspn",
        solver=BdCspn(),
        assumes=("balance",),
        summary="prototypes rectified by shifted, pseudo-labelled queries",
        cost="three products, N K d",
    ),
    Method(
        name="laplacianshot",
        solver=LaplacianShot(),
        preparation="centred-l2",
        assumes=("base-mean", "balance"),
        summary="rectified prototypes, neighbouring queries pulled to the same label",
        cost="Q Q d, and 20 steps of 2 K Q",
    ),
    Method(
        name="pt-map",
        solver=PtMap(),
        preparation="power-l2",
        assumes=("class-counts",),
        summary="optimal transport to classes of given sizes",
        cost="20 steps of 2 K Q d",
    ),
    Method(
        name="soft-kmeans",
        solver=SoftKMeans(),
        inductive=True,
        assumes=("balance",),
        summary="queries join the class means by their posterior",
        cost="two products, Q K d",
    ),
    Method(
        name="paddle",
        solver=Paddle(),
        assumes=("few-classes",),
        summary="soft k-means with learnt class shares",
        cost="20 steps of 2 K Q d",
    ),
    Method(
        name="oslo",
        solver=Oslo(),
        preparation="centred-l2",
        assumes=("base-mean", "balance", "open-set"),
        summary="soft k-means that weighs queries by how likely they belong to any class",
        cost="2 steps of 2 K Q d",
    ),
    Method(
        name="ostim",
        solver=Ostim(),
        preparation="centred-l2",
        assumes=("base-mean", "balance", "open-set"),
        summary="information maximization with one more class, for outliers",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="alpha-tim",
        solver=AlphaTim(),
        inductive=True,
        assumes=("all-classes",),
        summary="information maximization with entropies that forgive an unequal class balance",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="tim-gd",
        solver=TimGd(),
        inductive=True,
        assumes=("balance",),
        summary="information maximization, gradient descent",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="tim-adm",
        solver=TimAdm(),
        inductive=True,
        assumes=("balance",),
        summary="information maximization, closed-form updates",
        cost="150 steps of K N min(N, 2 d)",
    ),
    Method(
        name="tim-auto",
        solver=TimAuto(),
        inductive=True,
        summary="information maximization that decides how far to trust an equal class balance",
        cost="Q Q d, and 140 steps of K N min(N, 2 d)",
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


def resolve_method(spec: "str | Method | Solver[Any]") -> Method:
    """Return the method that a name, a method or a solver stands for."""
    if isinstance(spec, Solver):
        words = re.sub(r"(?<!^)(?=[A-Z])", "-", type(spec).__name__).lower()
        return Method(name=words, solver=spec, summary="", cost="")
    return spec if isinstance(spec, Method) else method_by_name(spec)


def method_by_name(name: str) -> Method:
    """Return the method of that name, or raise with the nearest one.

    Examples
    --------
    >>> method_by_name("tim-adm").solver.n_steps
    150
    """
    if name not in METHODS:
        raise InvalidArgumentError(unknown_name("method", name, METHODS))
    return METHODS[name]
