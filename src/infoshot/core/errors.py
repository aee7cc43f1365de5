"""The exceptions users meet. Each message is one sentence: what, what is required, what came."""


class InfoshotError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidArgumentError(InfoshotError, ValueError):
    """An argument has a value that is not allowed."""


class ShapeError(InfoshotError, ValueError):
    """An array has a shape that does not fit the others."""


class DataError(InfoshotError):
    """A file or a data set does not hold what it should."""


class LostProcessError(InfoshotError):
    """Another process that works on the same job has ended."""


class MissingDependencyError(InfoshotError, ImportError):
    """An optional package is needed and not installed; the message has the install command."""


class NonFiniteWarning(RuntimeWarning):
    """A solve ended with values that are not finite."""


class IsolatedWarning(UserWarning):
    """Some queries are connected to no labelled sample, so that nothing is known of them."""


class ImbalanceWarning(UserWarning):
    """The classes seem not to be equally frequent, although the method assumes that they are."""
