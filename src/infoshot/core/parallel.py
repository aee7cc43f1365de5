"""Process independent chunks, or the blocks of a large one, with several threads, one core each.

The matrix products of a few-shot task are too small to be split over cores, but tasks are
independent: every thread processes whole chunks with one core. PyTorch releases Python's global
lock inside its operations, so threads are enough.

A single large chunk is shared by its blocks of rows (``map_blocks``). PyTorch's own threads would
wait for each other at the end of every operation, and they use their core while they wait. Beside
other busy processes that makes a solve many times slower; threads that wait here use no core.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TypeVar

import torch

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class _Helpers:
    """Threads that help the thread of a chunk with its blocks."""

    pool: ThreadPoolExecutor
    number: int


_helpers: ContextVar[_Helpers | None] = ContextVar("helpers", default=None)


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
    by_blocks: bool = False,
) -> Iterator[Result]:
    """Apply ``work`` to every chunk and yield the results in order; chunks are consumed lazily.

    Several chunks run on one core each, ``n_threads`` of them at a time. A single chunk may use
    ``n_threads`` cores itself, unless ``split_single`` is false: for its blocks if ``by_blocks`` is
    true (``work`` then calls :func:`map_blocks`), else for its matrix products. So the results
    depend on the chunks, not on the number of threads, except for the rounding of the products of
    a single chunk.
    """
    coming = iter(chunks)
    first = list(islice(coming, 2))
    coming = chain(first, coming)
    if len(first) < 2 or n_threads == 1:
        for chunk in coming:
            alone = _with_helpers if by_blocks else _torch_threads
            with alone(n_threads if split_single else 1):
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


def map_blocks(work: Callable[[Chunk], Result], blocks: Sequence[Chunk]) -> list[Result]:
    """Apply ``work`` to every block of the current chunk; the results are in the order of blocks.

    The threads that :func:`map_chunks` gives to a single chunk share the blocks, one core each: the
    calling thread takes part, and each takes the next block when it is ready. Elsewhere the calling
    thread processes all blocks, also those of blocks.
    """
    helpers = _helpers.get()
    if helpers is None or len(blocks) < 2:
        return [work(block) for block in blocks]
    results: dict[int, Result] = {}
    waiting = deque(range(len(blocks)))
    inference = torch.is_inference_mode_enabled()

    def take_blocks() -> None:
        with torch.inference_mode(inference):  # a property of each thread
            while waiting:
                try:
                    number = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                try:
                    results[number] = work(blocks[number])
                except BaseException:
                    waiting.clear()  # the others stop too
                    raise

    n_helpers = min(helpers.number, len(blocks) - 1)
    futures: list[Future[None]] = [helpers.pool.submit(take_blocks) for _ in range(n_helpers)]
    token = _helpers.set(None)
    try:
        take_blocks()
    finally:
        _helpers.reset(token)
        errors = [future.exception() for future in futures]  # waits for them
    for error in errors:
        if error is not None:
            raise error
    return [results[number] for number in range(len(blocks))]


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


@contextmanager
def _with_helpers(n_threads: int) -> Iterator[None]:
    """Let PyTorch use one thread, and :func:`map_blocks` this many, the calling one included."""
    if n_threads == 1:
        with _torch_threads(1):
            yield
        return
    one_core = partial(torch.set_num_threads, 1)
    with _torch_threads(1), ThreadPoolExecutor(n_threads - 1, initializer=one_core) as pool:
        token = _helpers.set(_Helpers(pool, n_threads - 1))
        try:
            yield
        finally:
            _helpers.reset(token)
