"""Process independent chunks with several threads, one core each.

The matrix products of a few-shot task are too small to be split over cores, but tasks are
independent: every thread processes whole chunks with one core. PyTorch releases Python's global
lock inside its operations, so threads are enough.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import TypeVar

import torch

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")


def chunk_ranges(n_items: int, chunk_size: int) -> list[range]:
    """Split ``n_items`` into consecutive ranges of at most ``chunk_size``.

    Examples
    --------
    >>> chunk_ranges(5, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [
        range(start, min(start + chunk_size, n_items)) for start in range(0, n_items, chunk_size)
    ]


def map_chunks(
    work: Callable[[Chunk], Result],
    chunks: Iterable[Chunk],
    n_threads: int,
    *,
    split_single: bool = True,
) -> Iterator[Result]:
    """Apply ``work`` to every chunk and yield the results in order; chunks are consumed lazily.

    Several chunks run on one core each, ``n_threads`` of them at a time; a single chunk may use
    ``n_threads`` cores itself, unless ``split_single`` is false. So the results depend on the
    chunks, not on the number of threads, except for the rounding of a single chunk.
    """
    coming = iter(chunks)
    first = list(islice(coming, 2))
    coming = chain(first, coming)
    if len(first) < 2 or n_threads == 1:
        for chunk in coming:
            with _torch_threads(n_threads if split_single else 1):
                result = work(chunk)
            yield result
        return
    with _torch_threads(1), ThreadPoolExecutor(n_threads) as pool:
        # Only a few chunks ahead, so that memory does not grow with their number.
        futures = deque(
            pool.submit(_on_one_core, work, chunk) for chunk in islice(coming, 2 * n_threads)
        )
        try:
            while futures:
                result = futures.popleft().result()
                futures.extend(
                    pool.submit(_on_one_core, work, chunk) for chunk in islice(coming, 1)
                )
                yield result
        finally:
            for future in futures:
                future.cancel()


def _on_one_core(work: Callable[[Chunk], Result], chunk: Chunk) -> Result:
    torch.set_num_threads(1)  # also per thread, not only per process
    return work(chunk)


@contextmanager
def _torch_threads(n_threads: int) -> Iterator[None]:
    """Set the number of PyTorch's threads temporarily."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
