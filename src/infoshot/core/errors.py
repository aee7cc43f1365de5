"""Exceptions and warnings. Each message is one sentence: what is wrong, required, and given."""


class InfoshotError(Exception):
    """Base class of all exceptions of this package.

    Examples
    --------
    >>> from infoshot import InfoshotError, read_features
    >>> try:
    ...     read_features("missing.npz")
    ... except InfoshotError as error:
    ...     print(error)
    missing.npz: there is no such file.
    """


class InvalidArgumentError(InfoshotError, ValueError):
    """An argument has an invalid value.

    Examples
    --------
    >>> from infoshot import InvalidArgumentError, TimAdm
    >>> try:
    ...     TimAdm(temperature=-1.0).validate()
    ... except InvalidArgumentError as error:
    ...     print(error)
    TimAdm: temperature must be a finite number above 0; got -1.0.
    """


class ShapeError(InfoshotError, ValueError):
    """An array has a wrong shape.

    Examples
    --------
    >>> from infoshot import ShapeError, TimAdm
    >>> try:
    ...     TimAdm(class_prior=(0.5, 0.5)).validate(n_way=3)
    ... except ShapeError as error:
    ...     print(error)
    TimAdm: class_prior must hold one weight for each of the 3 classes; got 2.
    """


class DataError(InfoshotError):
    """A file or a data set is missing, damaged or inconsistent.

    Examples
    --------
    >>> from infoshot import DataError, inspect_dataset
    >>> try:
    ...     inspect_dataset("folder", "no-such-folder")
    ... except DataError as error:
    ...     print(error)
    no-such-folder: there is no such folder.
    """


class LostProcessError(InfoshotError):
    """Another process of the same job has ended."""


class MissingDependencyError(InfoshotError, ImportError):
    """An optional package is not installed; the message contains the install command.

    Examples
    --------
    >>> from infoshot import InfoshotError, MissingDependencyError
    >>> issubclass(MissingDependencyError, (InfoshotError, ImportError))
    True
    """


class NonFiniteWarning(RuntimeWarning):
    """A solve ended with non-finite values."""


class DivergedWarning(RuntimeWarning):
    """A solve ended with a higher objective than it had on the way."""


class IsolatedWarning(UserWarning):
    """Some queries are not connected to any labelled sample, so nothing is known about them."""


class ImbalanceWarning(UserWarning):
    """The classes seem not to be equally frequent, although the method assumes that they are."""
