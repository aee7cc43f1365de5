"""Objects that come from outside the package: ``package.module:Name``, and entry points.

Wherever a method or an encoder is named, ``package.module:Name`` names an object of any module
that Python can import; the current folder counts too. Installed packages may also register names
under the entry-point groups ``infoshot.methods`` and ``infoshot.encoders``.
"""

import importlib
import os
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from infoshot.core.errors import InvalidArgumentError


def is_reference(name: str) -> bool:
    """Whether a name has the form ``package.module:Name``.

    Examples
    --------
    >>> is_reference("my_methods:MySolver"), is_reference("tim-adm"), is_reference("C:/nets")
    (True, False, False)
    """
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and _is_dotted(module)


def load_reference(name: str) -> Any:  # noqa: ANN401 - whatever the module defines
    """Import the object that ``package.module:Name`` names.

    Raises
    ------
    InvalidArgumentError
        If there is no such module, it cannot be imported, it has no such name, or it belongs to
        Python itself: files name encoders too, and what they name is called.
    """
    module_name, _, attribute = name.partition(":")
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidArgumentError(
            f"'{name}': the module belongs to Python, so it has no methods or encoders."
        )
    here = os.getcwd()  # noqa: PTH109 - a string for sys.path
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the module raises when it is imported
        reason = str(error).split("\n", 1)[0]
        raise InvalidArgumentError(
            f"'{name}': the module '{module_name}' cannot be imported "
            f"({type(error).__name__}: {reason})."
        ) from error
    finally:
        if added:
            sys.path.remove(here)
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise InvalidArgumentError(
            f"'{name}': the module '{module_name}' has no '{attribute}'."
        ) from None


def list_entry_points(group: str) -> dict[str, EntryPoint]:
    """List what installed packages register under an entry-point group, by name."""
    return {point.name: point for point in entry_points(group=group)}


def load_entry_point(point: EntryPoint) -> Any:  # noqa: ANN401 - whatever the package registers
    """Import what an entry point names.

    Raises
    ------
    InvalidArgumentError
        If it cannot be imported.
    """
    try:
        return point.load()
    except Exception as error:  # whatever the package raises when it is imported
        reason = str(error).split("\n", 1)[0]
        raise InvalidArgumentError(
            f"'{point.name}': the entry point '{point.value}' cannot be imported "
            f"({type(error).__name__}: {reason})."
        ) from error


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
