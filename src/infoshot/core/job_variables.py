"""Environment variables that describe a job of several processes, checked before they are used.

``torchrun`` sets ``WORLD_SIZE``, ``RANK``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``, ``MASTER_ADDR``
and ``MASTER_PORT``. An empty variable counts as one that is not set.
"""

import os
from collections.abc import Mapping

from infoshot.core.errors import InvalidArgumentError

_LARGEST_PORT = 65_535


def check_job(environ: Mapping[str, str] = os.environ) -> None:
    """Check all variables of a job, and ``OMP_NUM_THREADS``.

    Raises
    ------
    InvalidArgumentError
        If one is not a number, does not fit the others, or is missing.
    """
    size = job_size(environ)
    if job_rank(environ) >= size:
        raise _wrong("RANK", environ, f"below the number of processes (WORLD_SIZE), {size}")
    if local_size(environ) > size and environ.get("WORLD_SIZE"):
        raise _wrong("LOCAL_WORLD_SIZE", environ, f"at most WORLD_SIZE, {size}")
    _number("LOCAL_RANK", environ, least=0)
    if (_number("MASTER_PORT", environ, least=1) or 1) > _LARGEST_PORT:
        raise _wrong("MASTER_PORT", environ, f"a port of at most {_LARGEST_PORT}")
    threads = environ.get("OMP_NUM_THREADS", "")
    if threads and not all((_parse(part) or 0) > 0 for part in threads.split(",")):
        raise _wrong("OMP_NUM_THREADS", environ, "a whole number of at least 1")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if size > 1 and not environ.get(name):
            raise _missing(name, environ)


def job_size(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes of the job."""
    return _number("WORLD_SIZE", environ, least=1) or 1


def job_rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of this process in the job; 0 for a single process."""
    return _number("RANK", environ, least=0) or 0


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of this process among those of the job on this machine."""
    number = _number("LOCAL_RANK", environ, least=0)
    if number is None:
        raise _missing("LOCAL_RANK", environ)
    return number


def local_size(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of processes of the job on this machine."""
    return _number("LOCAL_WORLD_SIZE", environ, least=1) or 1


def _number(name: str, environ: Mapping[str, str], *, least: int) -> int | None:
    """Return a variable as a whole number; ``None`` if it is not set."""
    if not environ.get(name):
        return None
    number = _parse(environ[name])
    if number is None or number < least:
        raise _wrong(name, environ, f"a whole number of at least {least}")
    return number


def _parse(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _missing(name: str, environ: Mapping[str, str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the environment variable WORLD_SIZE is '{environ['WORLD_SIZE']}', but {name} is not set; "
        "start the processes with torchrun, or unset it."
    )


def _wrong(name: str, environ: Mapping[str, str], required: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the environment variable {name} must be {required}; got '{environ[name]}'."
    )
