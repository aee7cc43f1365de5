"""The memory of the machine: how much there is, and keeping what was freed."""

import ctypes
import math
import os
import sys

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
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(parameter, _LARGEST_BLOCK)
