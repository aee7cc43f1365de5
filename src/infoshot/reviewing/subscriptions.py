"""What happens in a review, for every page that is open."""

import queue
from collections.abc import Callable
from typing import Any, NamedTuple

_MOST_WAITING = 10_000  # events; a page that reads none of them is given up


class Event(NamedTuple):
    """Something that a page should know; ``entry`` is the number of a log entry."""

    name: str
    data: Any
    entry: int | None = None


class Subscription:
    """The events for one page, in order; thread-safe."""

    def __init__(self, on_close: Callable[["Subscription"], None]) -> None:
        self._queue: queue.Queue[Event] = queue.Queue(_MOST_WAITING)
        self._on_close = on_close
        self.closed = False

    def put(self, event: Event) -> None:
        """Add an event; a page that falls far behind is closed, and asks again."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.close()

    def get(self, timeout: float) -> Event | None:
        """Return the next event; ``None`` if none comes in time."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End it."""
        self.closed = True
        self._on_close(self)
