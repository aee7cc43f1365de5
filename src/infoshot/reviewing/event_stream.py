"""Server-sent events: every open page gets what happens in the review."""

import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infoshot.reviewing.json_responses import format_json
from infoshot.reviewing.subscriptions import Subscription

_MOST_STREAMS = 64
_BEAT = 15.0  # seconds between two comments, which show that the connection is alive
_WAIT = 0.5  # seconds after which a stream notices that it shall end
_RETRY = b"retry: 1000\n\n"  # milliseconds until a page connects again


class EventStreams:
    """The open streams of a server; for each, a thread of its own waits for events."""

    def __init__(self) -> None:
        self.closing = False
        self._n_open = 0
        self._threads: anyio.CapacityLimiter | None = None

    def close(self) -> None:
        """End all streams, within half a second."""
        self.closing = True

    async def open(self, subscribe: Callable[[], Subscription]) -> Response:
        """Return a response that sends the events of a subscription.

        Raises
        ------
        HTTPException
            If too many streams are open.
        """
        if self._n_open >= _MOST_STREAMS:
            raise HTTPException(429, f"At most {_MOST_STREAMS} pages can be open at once.")
        self._n_open += 1
        try:
            return _EventResponse(self, await self.wait(subscribe))
        except BaseException:
            self._n_open -= 1
            raise

    def end(self, subscription: Subscription) -> None:
        """Close the subscription of a stream that has ended."""
        self._n_open -= 1
        subscription.close()

    async def wait(self, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Call a function that waits, in a thread that only streams use."""
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_MOST_STREAMS)
        return await anyio.to_thread.run_sync(function, *arguments, limiter=self._threads)


class _EventResponse(Response):
    """Sends events until the server stops, the client disconnects or falls far behind."""

    media_type = "text/event-stream"

    def __init__(self, streams: EventStreams, subscription: Subscription) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._streams = streams
        self._subscription = subscription

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_wait_for_disconnect, receive, tasks.cancel_scope)
                await self._send_events(send)
                tasks.cancel_scope.cancel()
        finally:
            self._streams.end(self._subscription)
        await send({"type": "http.response.body"})

    async def _send_events(self, send: Send) -> None:
        content, last = _RETRY, 0.0
        while not (self._streams.closing or self._subscription.closed):
            if content or time.monotonic() - last > _BEAT:
                body = content or b":\n\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})
                last = time.monotonic()
            event = await self._streams.wait(self._subscription.get, _WAIT)
            content = b"" if event is None else format_event(*event)


def format_event(name: str, data: Any, entry: int | None) -> bytes:  # noqa: ANN401 - any JSON
    r"""Format an event.

    Examples
    --------
    >>> format_event("map", {"projection": "pca"}, None)
    b'event: map\ndata: {"projection":"pca"}\n\n'
    """
    number = b"" if entry is None else b"id: %d\n" % entry
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), number, format_json(data))


async def _wait_for_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
