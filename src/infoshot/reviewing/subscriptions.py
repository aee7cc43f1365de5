"""What happens in a review, for every page that is open."""

import queue
import threading
from collections.abc import Callable, Iterable
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


class Publisher:
    """Sends events to all subscriptions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: set[Subscription] = set()

    def subscribe(self, missed: Iterable[Event]) -> Subscription:
        """Return a new subscription, which begins with what a page has missed."""
        subscription = Subscription(self._forget)
        for event in missed:
            subscription.put(event)
        with self._lock:
            self._subscriptions.add(subscription)
        return subscription

    def publish(self, name: str, data: object, entry: int | None = None) -> None:
        """Send an event."""
        with self._lock:
            everyone = list(self._subscriptions)
        for subscription in everyone:
            subscription.put(Event(name, data, entry))

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            everyone = list(self._subscriptions)
        for subscription in everyone:
            subscription.close()

    def _forget(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions.discard(subscription)
