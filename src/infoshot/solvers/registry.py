"""The methods by name, and ``resolve_method``, which also accepts methods from outside.

A *method* is a solver with its settings and what a caller must know about it: how to prepare the
features, what it assumes, what it costs.
"""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, Literal

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.plugins import is_reference, load_reference, registered
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
    """A solver with its settings and what a caller must know about it.

    ``Method(name="my-method", solver=MySolver())`` is enough; every other field has a default.

    Parameters
    ----------
    name
        How tables and files call it.
    solver
        The solver with its settings.
    preparation
        What the features need first: ``"l2"`` scales them to unit length, ``"centred-l2"``
        subtracts the mean of the base classes first, ``"power-l2"`` takes square roots first.
    transductive
        Whether it uses all queries together, so that their number and class balance matter.
    inductive
        Whether its class weights classify samples that were not among the queries, as the
        estimator and ``label`` need. ``None``: what the solver says, see ``Solver.inductive``.
    assumes
        What it assumes about the queries: keys of ``ASSUMPTIONS``.
    summary
        What it does, in one line. Empty: the first line of the solver's docstring.
    cost
        Its main operations.

    Examples
    --------
    >>> from infoshot.solvers import Method, Prototype
    >>> Method(name="sharp-prototype", solver=Prototype(temperature=50.0)).inductive
    True
    """

    name: str
    solver: Solver[Any]
    preparation: Preparation = "l2"
    transductive: bool = True
    inductive: bool | None = None
    assumes: tuple[Assumption, ...] = ()
    summary: str = ""
    cost: str = "unknown"

    def __post_init__(self) -> None:
        """Take what was not given from the solver."""
        if not isinstance(self.solver, Solver):
            raise InvalidArgumentError(
                f"Method '{self.name}': solver must be a Solver instance; got {self.solver!r}."
            )
        if self.inductive is None:
            object.__setattr__(self, "inductive", self.solver.inductive)
        if not self.summary:
            object.__setattr__(self, "summary", _summary(type(self.solver)))

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
        summary="nearest class mean",
        cost="one product, Q K d",
    ),
    Method(
        name="shrunken-prototype",
        solver=Prototype(shrinkage=5.0, temperature=100.0),
        transductive=False,
        summary="nearest class mean, each pulled towards the mean of all of them",
        cost="one product, Q K d",
    ),
    Method(
        name="simpleshot",
        solver=Prototype(),
        preparation="centred-l2",
        transductive=False,
        inductive=False,  # new samples would need the base classes' mean too
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
        summary="linear classifier fitted to the support",
        cost="100 steps of 2 K S d",
    ),
    Method(
        name="baseline++",
        solver=BaselinePlusPlus(),
        transductive=False,
        summary="cosine classifier fitted to the support",
        cost="100 steps of 2 K S d",
    ),
    Method(
        name="ent-min",
        solver=TimGd(
            marginal_entropy_weight=0.0, cross_entropy_weight=1.0, conditional_entropy_weight=1.0
        ),
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
        inductive=False,
        assumes=("base-mean", "balance", "open-set"),
        summary="information maximization with one more class, for outliers",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="alpha-tim",
        solver=AlphaTim(),
        assumes=("all-classes",),
        summary="information maximization with entropies that forgive an unequal class balance",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="tim-gd",
        solver=TimGd(),
        assumes=("balance",),
        summary="information maximization, gradient descent",
        cost="1000 steps of 2 K N d",
    ),
    Method(
        name="tim-adm",
        solver=TimAdm(),
        assumes=("balance",),
        summary="information maximization, closed-form updates",
        cost="150 steps of K N min(N, 2 d)",
    ),
    Method(
        name="tim-auto",
        solver=TimAuto(),
        summary="information maximization that decides how far to trust an equal class balance",
        cost="Q Q d, and 140 steps of K N min(N, 2 d)",
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


ENTRY_POINTS = "infoshot.methods"  # group of the entry points that installed packages register


def method_by_name(name: str) -> Method:
    """Return the registered method of that name.

    Raises
    ------
    InvalidArgumentError
        If there is none; the message suggests the nearest name.

    Examples
    --------
    >>> method_by_name("tim-adm").solver.n_steps
    150
    """
    if name not in METHODS:
        raise InvalidArgumentError(unknown_name("method", name, METHODS))
    return METHODS[name]


def resolve_method(spec: str | Method | Solver[Any] | type[Solver[Any]]) -> Method:
    """Return the method that a name, a reference or an object stands for.

    Parameters
    ----------
    spec
        One of:

        - a name of ``METHODS``, such as ``"tim-adm"``;
        - a name that an installed package registers under the entry-point group
          ``infoshot.methods``;
        - ``"package.module:Name"``, the reference of a ``Method``, a ``Solver`` instance or a
          ``Solver`` class of any module that Python can import;
        - a ``Method``, a ``Solver`` instance or a ``Solver`` class.

    Returns
    -------
    A ``Method`` as it is. A solver becomes a method with the default fields of ``Method``; a solver
    of this package keeps the preparation and the assumptions of its registered method. The name is
    the text that was given, or the registered name of the solver, or the name of its class in
    lower case with hyphens.

    Raises
    ------
    InvalidArgumentError
        If the name is unknown, the reference cannot be imported, or the object is not a usable
        solver; the message says what to change.

    Examples
    --------
    >>> from infoshot.solvers import TimAdm, resolve_method
    >>> resolve_method("infoshot.solvers:TimAdm").name
    'infoshot.solvers:TimAdm'
    >>> resolve_method(TimAdm(n_steps=50)).name
    'tim-adm'
    """
    if not isinstance(spec, str):
        return _as_method(spec, "method")
    if spec in METHODS:
        return METHODS[spec]
    if is_reference(spec):
        return _as_method(load_reference(spec), f"'{spec}'", name=spec)
    installed = registered(ENTRY_POINTS)
    if spec in installed:
        found = _as_method(load_reference(installed[spec]), f"'{spec}'")
        return dataclasses.replace(found, name=spec)
    raise InvalidArgumentError(
        unknown_name("method", spec, [*METHODS, *installed])
        + " A method of your own is named 'package.module:Name'."
    )


def method_reference(spec: str | Method | Solver[Any]) -> str:
    """Return the text from which :func:`resolve_method` makes the same method in another process.

    The settings of a solver are not part of it.

    Raises
    ------
    InvalidArgumentError
        If it is an object that no other process can import.
    """
    if isinstance(spec, str):
        return spec
    method = resolve_method(spec)
    kind = type(method.solver)
    for known in METHODS.values():
        if type(known.solver) is kind and known.name == method.name:
            return known.name
    reference = f"{kind.__module__}:{kind.__qualname__}"
    try:
        same = is_reference(reference) and load_reference(reference) is kind
    except InvalidArgumentError:
        same = False
    if not same or isinstance(spec, Method):
        raise InvalidArgumentError(
            f"method must be a text that other processes understand, since it is stored with the "
            f"results; got {method.name!r}. Pass 'package.module:Name' of the method instead."
        )
    return reference


def _as_method(given: object, what: str, name: str | None = None) -> Method:
    """Return a method, or what a solver instance or class becomes; ``what`` is for messages."""
    if isinstance(given, Method):
        return given
    solver = _instance(given, what) if isinstance(given, type) else given
    if not isinstance(solver, Solver):
        raise InvalidArgumentError(
            f"{what} must be {'' if name else 'a name, '}a Method, a Solver instance or a Solver "
            f"class; got {solver!r}."
        )
    kind = type(solver)
    parameters = vars(kind).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise InvalidArgumentError(
            f"{what}: {kind.__name__} must be a frozen dataclass; write "
            "@dataclass(frozen=True, kw_only=True) above the class."
        )
    alike = [method for method in METHODS.values() if type(method.solver) is kind]
    if not alike:
        return Method(name=name or _hyphenated(kind.__name__), solver=solver)
    alike.sort(key=lambda method: (method.solver != solver, method.solver != kind()))
    return dataclasses.replace(alike[0], name=name or alike[0].name, solver=solver)


def _instance(kind: type, what: str) -> object:
    """Make a solver of a class with its default settings."""
    if not issubclass(kind, Solver):
        raise InvalidArgumentError(
            f"{what}: the class {kind.__name__} must derive from infoshot.Solver."
        )
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise InvalidArgumentError(f"{what}: {kind.__name__} does not define {missing}.")
    try:
        return kind()
    except TypeError as error:
        raise InvalidArgumentError(
            f"{what}: {kind.__name__}() fails without arguments ({error}). Give every field a "
            "default, or pass an instance."
        ) from error


def _hyphenated(name: str) -> str:
    """Class name in lower case with hyphens: ``MySolver`` becomes ``my-solver``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


def _summary(kind: type) -> str:
    """First line of a docstring; the name of a class that has none of its own."""
    text = (vars(kind).get("__doc__") or "").strip()
    if not text or text.startswith(f"{kind.__name__}("):  # the signature that dataclass writes
        return kind.__name__
    return str(text.splitlines()[0].rstrip("."))
