"""Checks of arguments. Every message says which argument, what is required, and what was given."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from infoshot.core.errors import InvalidArgumentError, ShapeError
from infoshot.core.types import TaskBatch

MOST_THREADS = 1024  # thousands of threads fail, some of them without a message
MOST_STEPS = 10**7  # a step takes microseconds at least
_LARGEST = 1e12  # of weights and temperatures; products with them stay finite in float32


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Format the message for an unknown name, with the nearest known one.

    Examples
    --------
    >>> unknown_name("method", "tim-adn", ["prototype", "tim-adm"])
    "Unknown method 'tim-adn'. Did you mean 'tim-adm'? Known: prototype, tim-adm."
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"Unknown {kind} '{name}'.{hint} Known: {', '.join(known)}."


def positive(name: str, value: object) -> None:
    """Require a finite number above zero."""
    if not (_is_number(value) and value > 0):
        raise InvalidArgumentError(f"{name} must be a finite number above 0; got {value!r}.")
    _at_most(name, value, _LARGEST)


def not_negative(name: str, value: object) -> None:
    """Require a finite number of at least zero."""
    if not (_is_number(value) and value >= 0):
        raise InvalidArgumentError(f"{name} must be a finite number of at least 0; got {value!r}.")
    _at_most(name, value, _LARGEST)


def positive_or_none(name: str, value: object) -> None:
    """Require a finite number above zero, or ``None``."""
    if value is not None:
        positive(name, value)


def between(name: str, value: object, low: float, high: float) -> None:
    """Require a number from ``low`` to ``high``."""
    if not (_is_number(value) and low <= value <= high):
        raise InvalidArgumentError(f"{name} must be between {low:g} and {high:g}; got {value!r}.")


def at_least(name: str, value: object, least: int, most: int | None = None) -> None:
    """Require a whole number of at least ``least``, and at most ``most`` if it is given."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InvalidArgumentError(
            f"{name} must be a whole number of at least {least}; got {value!r}."
        )
    if most is not None:
        _at_most(name, value, most)


def seed(name: str, value: object) -> None:
    """Require a whole number from 0 to the largest of 64 bits."""
    at_least(name, value, 0, 2**63 - 1)


def one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Require one of a closed set of values."""
    if value not in allowed:
        listed = ", ".join(repr(item) for item in allowed)
        raise InvalidArgumentError(f"{name} must be one of {listed}; got {value!r}.")


def share_or_none(name: str, value: object) -> None:
    """Require a number above 0 and up to 1, or ``None``."""
    if value is not None and not (_is_number(value) and 0 < value <= 1):
        raise InvalidArgumentError(f"{name} must be above 0 and at most 1; got {value!r}.")


def below_one(name: str, value: object) -> None:
    """Require a number above 0 and below 1."""
    if not (_is_number(value) and 0 < value < 1):
        raise InvalidArgumentError(f"{name} must be above 0 and below 1; got {value!r}.")


def share_below_one(name: str, value: object) -> None:
    """Require a number of at least 0 and below 1."""
    if not (_is_number(value) and 0 <= value < 1):
        raise InvalidArgumentError(f"{name} must be at least 0 and below 1; got {value!r}.")


def prior_or_none(name: str, value: object) -> None:
    """Require one finite weight above 0 per class, or ``None``."""
    if value is None:
        return
    weights = np.asarray(value)
    if weights.dtype.kind not in "fiu" or weights.ndim != 1:
        raise InvalidArgumentError(f"{name} must be a list of numbers; got {value!r}.")
    if not weights.any():
        raise InvalidArgumentError(f"{name} must give some class a weight above 0; got zeros only.")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidArgumentError(f"{name} must hold finite weights of at least 0; got {value!r}.")
    if not weights.all():
        raise InvalidArgumentError(
            f"{name} must be above 0 for every class; got {value!r}. If a class cannot occur, "
            "remove its examples."
        )


def device(name: str) -> None:
    """Require a device that PyTorch can use here."""
    try:
        if torch.empty(0, device=name).is_meta:
            raise RuntimeError("holds no data")
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgumentError(f"device '{name}' is not available here; use 'cpu'.") from error


def few_queries(n_qry: int, n_way: int) -> str | None:
    """Return a warning if there are too few queries for a meaningful class balance."""
    if n_qry >= 3 * n_way:
        return None
    return (
        f"{n_qry} unlabelled samples for {n_way} classes are fewer than three per class, too few "
        "for the assumption that all classes are about equally frequent; the method 'tim-auto' "
        "does not make it."
    )


def order_shares(shares: Mapping[str, float], classes: Sequence[str]) -> list[float]:
    """Return class shares in the order of the classes, all of which must be named."""
    missing = [name for name in classes if name not in shares]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        names = ", ".join(missing[:5]) + more
        raise InvalidArgumentError(f"prior must name every class once; missing: {names}.")
    for name, share in shares.items():
        positive(f"prior of '{name}'", share)
        if name not in classes:
            raise InvalidArgumentError(f"prior must name classes only; '{name}' is not one.")
    return [shares[name] for name in classes]


def numeric_tensor(name: str, value: Any) -> Tensor:  # noqa: ANN401 - any array-like may come
    """Convert an array-like of real numbers to a tensor, without a copy if possible."""
    if isinstance(value, Tensor):
        if value.is_complex():
            raise InvalidArgumentError(f"{name} must hold real numbers; got {value.dtype}.")
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} must be a regular array; got nested lists of {error}.") from error
    if array.dtype.kind not in "fiub":
        raise InvalidArgumentError(f"{name} must hold real numbers; got an array of {array.dtype}.")
    native = np.float64 if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
    array = np.ascontiguousarray(array, dtype=native)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def check_tasks(tasks: TaskBatch) -> TaskBatch:
    """Convert a batch of tasks to tensors of one device and dtype, or raise."""
    if not isinstance(tasks, TaskBatch):
        raise InvalidArgumentError(f"tasks must be a TaskBatch; got {type(tasks).__name__}.")
    at_least("n_way", tasks.n_way, 2)
    z_sup, z_qry = _floating("z_sup", tasks.z_sup), _floating("z_qry", tasks.z_qry)
    y_sup = numeric_tensor("y_sup", tasks.y_sup)
    _check_shapes(z_sup, y_sup, z_qry)
    if z_sup.dtype != z_qry.dtype or z_sup.device != z_qry.device:
        raise InvalidArgumentError(
            f"z_qry must have the dtype and device of z_sup ({z_sup.dtype} on {z_sup.device}); "
            f"got {z_qry.dtype} on {z_qry.device}."
        )
    for name, features in (("z_sup", z_sup), ("z_qry", z_qry)):
        check_finite(name, features)
    y_sup = support_labels(y_sup, tasks.n_way).to(z_sup.device)
    return TaskBatch(z_sup, y_sup, z_qry, int(tasks.n_way))


def support_labels(y_sup: Tensor, n_way: int) -> Tensor:
    """Labels of the support as int64, ``(task, support)``; every class occurs in every task."""
    labels = y_sup.long()
    if y_sup.is_floating_point() and not torch.equal(labels.to(y_sup.dtype), y_sup):
        raise InvalidArgumentError("y_sup must hold whole numbers; got fractions.")
    low, high = (int(label) for label in labels.aminmax())
    if low < 0 or high >= n_way:
        raise InvalidArgumentError(
            f"y_sup must hold labels from 0 to {n_way - 1} (n_way={n_way}); got {low} to {high}."
        )
    present = torch.zeros(len(labels), n_way, dtype=torch.bool, device=labels.device)
    present.scatter_(1, labels, True)
    if not present.all():
        task, label = (~present).nonzero()[0].tolist()
        raise InvalidArgumentError(
            f"y_sup must hold at least one sample of every class; "
            f"task {task} has none of class {label}."
        )
    return labels


def check_finite(name: str, features: Tensor) -> None:
    """Require that no value is NaN or infinite, and name the first place where one is."""
    # The sum is one fast pass and not finite if any value is not; only then look closer.
    if math.isfinite(features.sum().item()):
        return
    bad = (~features.isfinite()).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidArgumentError(
            f"{name} must be finite; got {features[place].item()} at index {place} "
            f"({len(bad)} such values in all)."
        )


def _at_most(name: str, value: Any, most: float) -> None:  # noqa: ANN401 - any kind of number
    if value > most:
        limit = most if isinstance(most, int) else f"{most:g}"
        raise InvalidArgumentError(f"{name} must be at most {limit}; got {value!r:.60}.")


def _floating(name: str, value: object) -> Tensor:
    tensor = numeric_tensor(name, value)
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def _check_shapes(z_sup: Tensor, y_sup: Tensor, z_qry: Tensor) -> None:
    if z_sup.ndim != 3 or 0 in z_sup.shape:
        raise ShapeError(
            f"z_sup must have shape (task, support, dim), none of them 0; got {tuple(z_sup.shape)}."
        )
    n_tasks, n_sup, dim = z_sup.shape
    if y_sup.shape != (n_tasks, n_sup):
        raise ShapeError(
            f"y_sup must have shape (task, support) = ({n_tasks}, {n_sup}) like z_sup; "
            f"got {tuple(y_sup.shape)}."
        )
    if z_qry.ndim != 3 or z_qry.shape[0] != n_tasks or z_qry.shape[2] != dim or not z_qry.shape[1]:
        raise ShapeError(
            f"z_qry must have shape (task, query, dim) with task={n_tasks} and dim={dim} "
            f"like z_sup and at least one query; got {tuple(z_qry.shape)}."
        )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
