"""Methods from names, references and objects: ``resolve_method``, and how methods are stored.

Wherever a method is named, ``package.module:Name`` names a method of any module that Python can
import, and installed packages may register names under the entry-point group ``infoshot.methods``.
"""

import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from infoshot.core.checks import unknown_name
from infoshot.core.errors import InvalidArgumentError
from infoshot.core.plugins import (
    is_reference,
    list_entry_points,
    load_entry_point,
    load_reference,
)
from infoshot.solvers.method import Method
from infoshot.solvers.registry import METHODS
from infoshot.solvers.solver import Solver

ENTRY_POINTS = "infoshot.methods"
"""The entry-point group under which installed packages register methods.

Examples
--------
>>> from infoshot.solvers import ENTRY_POINTS
>>> ENTRY_POINTS
'infoshot.methods'
"""


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
    installed = list_entry_points(ENTRY_POINTS)
    if spec in installed:
        found = _as_method(load_entry_point(installed[spec]), f"'{spec}'")
        return dataclasses.replace(found, name=spec)
    raise InvalidArgumentError(
        unknown_name("method", spec, [*METHODS, *installed])
        + " A method of your own is named 'package.module:Name'."
    )


def method_facts(method: Method) -> dict[str, Any]:
    """Describe a method as JSON values, so that :func:`method_from_facts` can make it again.

    Raises
    ------
    InvalidArgumentError
        If the class of the solver cannot be imported again, or JSON cannot hold its settings.

    Examples
    --------
    >>> facts = method_facts(METHODS["tim-adm"])
    >>> facts["solver"], facts["settings"]["n_steps"]
    ('infoshot.solvers.tim_adm:TimAdm', 150)
    """
    kind = type(method.solver)
    reference = f"{kind.__module__}:{kind.__qualname__}"
    importable = kind.__module__ != "__main__" and is_reference(reference)
    if not importable or load_reference(reference) is not kind:
        raise InvalidArgumentError(
            f"the method '{method.name}' cannot be saved: {kind.__name__} cannot be imported as "
            f"'{reference}'. Define the class at the top level of a module."
        )
    facts = {name: value for name, value in vars(method).items() if name != "solver"}
    return {**facts, "solver": reference, "settings": _plain_settings(method)}


def stored_method(stored: str | Mapping[str, Any]) -> str | Method:
    """Return a method that a file names, or make one from the facts of :func:`method_facts`.

    A file is not trusted: it never imports a module, and nothing but a solver is made. The module
    of a solver that is not part of this package must have been imported before.

    Raises
    ------
    InvalidArgumentError
        If its module was not imported, it is not a solver, or it does not have these settings.

    Examples
    --------
    >>> stored_method("tim-adm")
    'tim-adm'
    >>> stored_method(method_facts(METHODS["tim-adm"])).name
    'tim-adm'
    """
    if isinstance(stored, str):
        if is_reference(stored):
            _check_imported(stored)
        return stored
    return method_from_facts(stored)


def method_from_facts(facts: Mapping[str, Any]) -> Method:
    """Make the method that :func:`method_facts` described.

    Raises
    ------
    InvalidArgumentError
        If its module was not imported, it is not a solver, or it does not have these settings.

    Examples
    --------
    >>> method = METHODS["tim-adm"]
    >>> method_from_facts(method_facts(method)) == method
    True
    """
    try:
        facts = {**facts, "assumes": tuple(facts["assumes"])}
        reference, settings = str(facts.pop("solver")), dict(facts.pop("settings"))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the stored method is damaged ({error!r}).") from error
    _check_imported(reference)
    kind = load_reference(reference)
    if not (isinstance(kind, type) and issubclass(kind, Solver)):
        raise InvalidArgumentError(f"the stored method '{reference}' is not a solver.")
    try:
        return Method(**facts, solver=kind(**settings))
    except TypeError as error:
        raise InvalidArgumentError(
            f"'{reference}' does not take the stored settings ({error})."
        ) from error


def _check_imported(reference: str) -> None:
    """Refuse the reference of a module that Python has not imported yet."""
    module = reference.partition(":")[0]
    if not is_reference(reference) or module not in sys.modules:
        raise InvalidArgumentError(
            f"the stored method '{reference}' is not part of InfoShot, and a file does not import "
            "modules; if you trust it, import its module first."
        )


def _plain_settings(method: Method) -> dict[str, Any]:
    """Settings of the solver as JSON values; arrays become lists."""

    def plain(value: Any) -> Any:  # noqa: ANN401 - what JSON does not know
        if hasattr(value, "tolist"):
            return value.tolist()
        raise InvalidArgumentError(
            f"the method '{method.name}' cannot be saved: a setting of type "
            f"{type(value).__name__} cannot be stored as JSON."
        )

    settings: dict[str, Any] = json.loads(json.dumps(method.solver.settings(), default=plain))
    return settings


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
