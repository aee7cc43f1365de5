"""Memory: how much the machine has, the peak of this process, keeping or releasing freed blocks."""

import ctypes
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # numbers of mallopt's parameters
_LARGEST_BLOCK = 2**31 - 1


def total_memory() -> float:
    """Return the bytes of memory, infinite if the system does not say."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def keep_freed_memory() -> None:
    """Keep freed memory in the process, for the next tensor of that size.

    By default the C library returns every large block to the system and requests it again, page by
    page, which takes two fifths of the time of training a small network on a CPU. This changes the
    whole process, so commands call it and library functions do not. Has an effect only with GNU's
    C library. Arrow, if it is imported later, takes its memory from the C library too, where
    tensors can use it again; its own allocator keeps several times what it needs.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    mallopt = _c_function("mallopt")
    if mallopt is not None:
        for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, _LARGEST_BLOCK)


def release_arrow_memory() -> None:
    """Return the memory that Arrow has freed to the system."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def watch_peak() -> Callable[[], float]:
    """Start to measure memory; the returned function gives the peak since then.

    In bytes above what was in use at the start; NaN if the system does not say.
    """
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)  # else memory that was freed before is reused unnoticed
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
    except OSError:
        return lambda: math.nan
    return lambda: max(0.0, _resident("VmHWM") - before)


def _resident(name: str) -> float:
    """Read a number of bytes from the system's statistics of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * float(line.split()[1])
    return math.nan


def _c_function(name: str) -> Any:  # noqa: ANN401 - ctypes has no type for it
    """Return a function of GNU's C library, or ``None``."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
