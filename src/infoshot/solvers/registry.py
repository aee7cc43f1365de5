"""The methods by name, each with what its caller must know: preparation, assumptions, cost."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from infoshot.checks import unknown_name
from infoshot.errors import InvalidArgumentError
from infoshot.solvers.base import Solver
from infoshot.solvers.baselines.prototype import Prototype
from infoshot.solvers.tim_adm import TimAdm
from infoshot.solvers.tim_gd import TimGd

Preparation = Literal["l2", "centred-l2"]


@dataclasses.dataclass(frozen=True)
class Method:
    """A solver with its published settings and what its caller must know.

    ``preparation`` is what the features need first: ``"l2"`` unit length, ``"centred-l2"`` minus
    the base classes' mean, then unit length. A ``transductive`` method looks at all queries
    together, so that their number and balance matter.
    """

    name: str
    solver: Solver[Any]
    preparation: Preparation
    transductive: bool
    summary: str
    assumes: str
    cost: str

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
        preparation="l2",
        transductive=False,
        summary="nearest class mean",
        assumes="nothing about the queries",
        cost="one product, Q K d",
    ),
    Method(
        name="shrunken-prototype",
        solver=Prototype(shrinkage=5.0),
        preparation="l2",
        transductive=False,
        summary="nearest class mean, each pulled towards the mean of all of them",
        assumes="nothing about the queries",
        cost="one product, Q K d",
    ),
    Method(
        name="simpleshot",
        solver=Prototype(),
        preparation="centred-l2",
        transductive=False,
        summary="nearest class mean of features centred on the base classes",
        assumes="the base mean is known",
        cost="one product, Q K d",
    ),
    Method(
        name="tim-adm",
        solver=TimAdm(),
        preparation="l2",
        transductive=True,
        summary="information maximization, closed-form updates",
        assumes="about as many queries of every class (or a class prior)",
        cost="150 steps of K N min(N, 2 d)",
    ),
    Method(
        name="tim-gd",
        solver=TimGd(),
        preparation="l2",
        transductive=True,
        summary="information maximization, gradient descent",
        assumes="about as many queries of every class (or a class prior)",
        cost="1000 steps of 2 K N d",
    ),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


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
