"""Exceptions and warnings. Each message is one sentence: what is wrong, required, and given."""


class InfoshotError(Exception):
    """Base class of all exceptions of this package."""


class InvalidArgumentError(InfoshotError, ValueError):
    """An argument has an invalid value."""


class ShapeError(InfoshotError, ValueError):
    """An array has a wrong shape."""


class DataError(InfoshotError):
    """A file or a data set is missing, damaged or inconsistent."""


class LostProcessError(InfoshotError):
    """Another process of the same job has ended."""


class MissingDependencyError(InfoshotError, ImportError):
    """An optional package is not installed; the message contains the install command."""


class NonFiniteWarning(RuntimeWarning):
    """A solve ended with non-finite values."""


class DivergedWarning(RuntimeWarning):
    """A solve ended with a higher objective than it had on the way."""


class IsolatedWarning(UserWarning):
    """Some queries are not connected to any labelled sample, so nothing is known about them."""


class ImbalanceWarning(UserWarning):
    """The classes seem not to be equally frequent, although the method assumes that they are."""
