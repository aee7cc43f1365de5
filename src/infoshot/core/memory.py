"""The memory of the machine: how much there is, how much is used, and keeping what was freed."""

import ctypes
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # numbers of mallopt's parameters
_LARGEST_BLOCK = 2**31 - 1


def memory_of_machine() -> float:
    """Bytes of memory, infinite where the system does not tell."""
    if not hasattr(os, "sysconf"):
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def keep_freed_memory() -> None:
    """Let the process keep the memory it frees, for the next tensor of that size.

    The C library would give every large block back and ask for it again, page by page: two fifths
    of the time of training a small network on a CPU. For commands that end, not for other people's
    processes; does nothing where the C library is not GNU's.
    """
    mallopt = _c_function("mallopt")
    if mallopt is not None:
        for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, _LARGEST_BLOCK)


def watch_peak() -> Callable[[], float]:
    """Begin to watch the memory of this process; call what is returned for the peak since then.

    In bytes, beside what was in use at the beginning; NaN where the system does not tell.
    """
    trim = _c_function("malloc_trim")
    if trim is not None:
        trim(0)  # what was freed before would be used again unseen
    try:
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
    except OSError:
        return lambda: math.nan
    return lambda: max(0.0, _resident("VmHWM") - before)


def _resident(name: str) -> float:
    """Bytes from a line of the system's own account."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * float(line.split()[1])
    return math.nan


def _c_function(name: str) -> Any:  # noqa: ANN401 - ctypes has no type for it
    """Return a function of GNU's C library, or ``None`` where there is none."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
