"""Decode many images in parallel, in order.

For small images Pillow spends two thirds of the time in Python, where threads wait for each other:
on 16 cores, 2 threads decode 4,400 JPEGs of 84 x 84 pixels per second, 16 threads 2,400, and 8
processes 17,800. So processes decode large sets where they can be forked, and threads the others.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from PIL import Image

from infoshot.core.errors import DataError

ImageT = TypeVar("ImageT")  # a record or a location
Result = TypeVar("Result")
_AT_ONCE = 32
_FEWEST_FOR_PROCESSES = 2000
_MOST_WORKERS = 16
_THREADS = 4
_PR_SET_PDEATHSIG = 1


def decode_workers() -> int:
    """Number of cores for decoding; the processes of one ``torchrun`` share the machine's."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(_MOST_WORKERS, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def map_images(
    work: Callable[[ImageT], Result], images: Sequence[ImageT], n_workers: int
) -> Iterator[Result]:
    """Apply ``work`` to every image and yield the results in order, computed a little ahead.

    Parameters
    ----------
    work
        Function of an image; must be picklable.
    images
        The images: records or locations; must be picklable.
    n_workers
        Number of threads or processes.
    """
    with _workers(n_workers, len(images)) as pool:
        ahead: deque[Future[list[Result]]] = deque()
        for start in range(0, len(images), _AT_ONCE):
            ahead.append(pool.submit(_work_on, work, images[start : start + _AT_ONCE]))
            if len(ahead) > 2 * n_workers:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()


@contextmanager
def _workers(n_workers: int, n_images: int) -> Iterator[Executor]:
    # Warning filters apply to the whole process, so set them once, around all workers.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        forked = sys.platform == "linux" and n_workers > 1 and n_images >= _FEWEST_FOR_PROCESSES
        pool = _processes(n_workers) if forked else ThreadPoolExecutor(min(n_workers, _THREADS))
        try:
            with pool:
                try:
                    yield pool
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        except BrokenProcessPool as error:
            raise DataError(
                "a process that decoded images was killed; perhaps the machine ran out of memory."
            ) from error


def _processes(n_workers: int) -> Executor:
    """Fork processes; they only decode, so that threads of the parent do no harm."""
    Image.init()  # so that no worker has to import anything
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(n_workers, mp_context=context, initializer=_die_with_parent)


def _die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops them
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work_on(work: Callable[[ImageT], Result], images: Sequence[ImageT]) -> list[Result]:
    return [work(image) for image in images]
