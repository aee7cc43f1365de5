"""The version, in one place."""

__version__ = "0.1.0"
"""The version of the package, as in its file of changes.

Examples
--------
>>> import infoshot
>>> len(infoshot.__version__.split("."))
3
"""
