"""``Method``: a solver with its settings and what a caller must know about it.

That is how to prepare the features, what the method assumes about the queries and what it costs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.types import Preparation
from infoshot.solvers.solver import Solver

Assumption = Literal[
    "base-mean",
    "base-scatter",
    "balance",
    "all-classes",
    "class-counts",
    "few-classes",
    "open-set",
]

ASSUMPTIONS: Mapping[Assumption, str] = {
    "base-mean": "needs the mean feature of the base classes",
    "base-scatter": "uses the mean feature of the base classes and the scatter within them",
    "balance": "every class has about the same number of queries",
    "all-classes": "every class has queries, not necessarily the same number",
    "class-counts": "the number of queries of each class is known; by default all equal",
    "few-classes": "the queries belong to few of the classes",
    "open-set": "queries may belong to none of the classes",
}
"""What a method can assume about the queries, with the meaning.

Examples
--------
>>> from infoshot.solvers import ASSUMPTIONS
>>> ASSUMPTIONS["balance"]
'every class has about the same number of queries'
"""


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
        subtracts the mean of the base classes first, ``"whitened"`` whitens them by the scatter
        within the base classes first, if it is known, ``"power-l2"`` takes square roots first,
        ``"none"`` leaves them as they are.
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
    retry
        Whether benchmarks solve tasks that diverge again, with smaller steps, as the estimator and
        ``label`` always do. By default they report what the method gives.

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
    retry: bool = False

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
    def uses_base_scatter(self) -> bool:
        """Whether features are whitened by the scatter within the base classes, if it is known."""
        return self.preparation == "whitened"

    @property
    def expects_balance(self) -> bool:
        """Whether imbalanced classes among the queries, or very few queries, reduce accuracy."""
        return bool({"balance", "all-classes", "class-counts"} & set(self.assumes))

    def with_settings(self, settings: Mapping[str, Any]) -> "Method":
        """Return the method with some hyperparameters changed.

        A name may be written with the method: ``tim-adm.temperature``.
        """
        known = list(self.solver.settings())
        settings = {name.removeprefix(f"{self.name}."): v for name, v in settings.items()}
        for name in settings:
            if not known:
                raise InvalidArgumentError(
                    f"{self.name} has no settings that can be changed; got '{name}'."
                )
            if name not in known:
                raise InvalidArgumentError(unknown_name(f"setting of {self.name}", name, known))
        solver = self.solver.with_settings(**settings)
        solver.validate()
        return dataclasses.replace(self, solver=solver)


def _summary(kind: type) -> str:
    """First line of a docstring; the name of a class that has none of its own."""
    text = (vars(kind).get("__doc__") or "").strip()
    if not text or text.startswith(f"{kind.__name__}("):  # the signature that dataclass writes
        return kind.__name__
    return str(text.splitlines()[0].rstrip("."))
