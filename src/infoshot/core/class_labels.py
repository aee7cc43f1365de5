"""Labels of rows as users pass them: which rows are unlabelled, and what can be a label.

A label is text, a whole number, a float without fraction or a boolean: what a file can hold and
give back unchanged. -1, or ``None`` and NaN among objects, marks an unlabelled row.
"""

from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from infoshot.core.errors import InvalidArgumentError

Array = NDArray[Any]
_MOST_BYTES = 2**28  # of all different labels together
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def keep_types(y: ArrayLike) -> ArrayLike:
    """Convert text with None, NaN or -1 to objects; NumPy would convert all of it to text."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "T":  # text of any length
        return y.astype(object)
    if isinstance(y, (list, tuple)) and any(isinstance(label, str) for label in y):
        return np.array(y, dtype=object)
    return y


def split_labels(y: Array) -> tuple[Array, Array]:
    """Return the labels of the labelled rows, and the mask of the unlabelled rows.

    Parameters
    ----------
    y
        One-dimensional, of any type.

    Returns
    -------
    Labels as an array of text, numbers or booleans, and a boolean mask of all rows.

    Raises
    ------
    InvalidArgumentError
        If there are labels of another type, of several types, or a marker as text.

    Examples
    --------
    >>> split_labels(np.array(["cat", None, "dog"], dtype=object))
    (array(['cat', 'dog'], dtype='<U3'), array([False,  True, False]))
    """
    if y.dtype == object:
        unlabelled = np.array([_is_marker(label) for label in y], dtype=bool)
        known = _one_type(y[~unlabelled].tolist())
    elif y.dtype.kind in "biuf":
        unlabelled = y == -1
        known = y[~unlabelled]
    elif y.dtype.kind == "U":
        unlabelled, known = np.zeros(len(y), dtype=bool), y
    else:
        _refuse(f"labels of the type {y.dtype}")
    if known.dtype.kind == "U":
        _check_no_marker(known)
    if known.dtype == np.longdouble:  # it has no form in files that is the same everywhere
        known = known.astype(np.float64)
    return known, unlabelled


def stored_labels(values: object, dtype: object) -> Array:
    """Make labels again from what a file holds: a list of values, and NumPy's name of their type.

    Raises
    ------
    ValueError, TypeError, OverflowError
        If they are not different labels of that type.
    """
    if not isinstance(values, list) or not isinstance(dtype, str):
        raise TypeError("the labels must be a list, and their type text")
    kind = np.dtype(dtype)
    if kind.kind not in "biufU" or kind.itemsize * len(values) > _MOST_BYTES:
        raise ValueError(f"labels cannot have the type {dtype!r}")
    labels = np.array(values, dtype=kind)
    if labels.ndim != 1 or labels.tolist() != values or len(set(values)) != len(values):
        raise ValueError("the labels must be different, and all of one type")
    return labels


def _is_marker(label: object) -> bool:
    """Whether an object marks an unlabelled row; labels of other types are refused."""
    if label is None or isinstance(label, str):
        return label is None
    if not isinstance(label, _NUMBERS):
        _refuse(f"a label of the type {type(label).__name__}")
    return bool(label != label or label == -1)


def _one_type(labels: list[Any]) -> Array:
    """Make an array of text only, or of numbers only."""
    n_texts = sum(isinstance(label, str) for label in labels)
    if 0 < n_texts < len(labels):
        number = next(label for label in labels if not isinstance(label, str))
        text = next(label for label in labels if isinstance(label, str))
        raise InvalidArgumentError(
            f"y mixes text and numbers as labels, such as {text!r} and {number!r}; use one of them."
        )
    array = np.array(labels, dtype=str if n_texts else None)
    if array.tolist() != labels:  # text that ends with a null character
        _refuse("a label that NumPy cannot hold unchanged")
    if array.dtype == object:
        _refuse("whole numbers of more than 64 bits")
    return array


def _check_no_marker(known: Array) -> None:
    """Refuse markers that were converted to text."""
    for marker in ("-1", "nan", "None", ""):
        if (known == marker).any():
            raise InvalidArgumentError(
                f"y holds the text '{marker}'; mark unlabelled rows by None (in a list or an "
                "object array), or rename the class."
            )


def _refuse(what: str) -> NoReturn:
    raise InvalidArgumentError(
        f"y holds {what}, which cannot be saved; use text, whole numbers or booleans."
    )
