"""Errors of the parsers that other packages provide."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def parser_errors() -> Iterator[None]:
    """Turn whatever a parser raises for damaged content into ``ValueError`` with one line of text.

    Parsers raise many kinds of errors for content that nobody expected, such as ``MemoryError``,
    ``RecursionError`` and ``tokenize.TokenError``, and warn about some of it. Errors of the system
    (``OSError``) stay as they are.

    Examples
    --------
    >>> with parser_errors():
    ...     {}["features"]
    Traceback (most recent call last):
    ValueError: KeyError: 'features'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise
    except Exception as error:
        text = str(error).split("\n", 1)[0][:200]
        plain = isinstance(error, ValueError) and text
        raise ValueError(text if plain else f"{type(error).__name__}: {text}") from error
