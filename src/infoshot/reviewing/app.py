"""The requests of the page: each is parsed, passed to one method of the session, and answered."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infoshot.core import checks
from infoshot.core.errors import DataError, InfoshotError
from infoshot.reviewing import request_fields as fields
from infoshot.reviewing.answer_rules import Conflict
from infoshot.reviewing.event_stream import EventStreams
from infoshot.reviewing.json_responses import error_response, failure_response, json_response
from infoshot.reviewing.pictures import SIZES, Pictures
from infoshot.reviewing.session import Session

STATIC = Path(__file__).parent / "static"
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_AT_ONCE = 2  # pictures that are decoded
_BINARY = "application/octet-stream"


def create_app(session: Session, streams: EventStreams) -> Starlette:
    """Return the application without its access control.

    Parameters
    ----------
    session
        The review.
    streams
        Sends the events.
    """
    reading, writing = _Reading(session), _Writing(session)
    pages = _read_pages(STATIC)
    handlers: Mapping[Any, Callable[[Request, Any], Response]] = {
        HTTPException: lambda _, error: error_response(error),
        Conflict: _answer_conflict,
        InfoshotError: lambda _, error: error_response(HTTPException(400, str(error))),
        Exception: lambda *_: failure_response(),  # raised again, and logged by the access control
    }
    routes = [
        Route("/", partial(_send_page, pages, name="index.html")),
        Route("/static/{name}", partial(_send_page, pages)),
        Route("/image/{number}", _Images(session).send),
        Route("/api/events", partial(_send_events, session, streams)),
        *(Route(f"/api/{name}", endpoint) for name, endpoint in reading.endpoints().items()),
        *(
            Route(f"/api/{name}", endpoint, methods=["POST"])
            for name, endpoint in writing.endpoints().items()
        ),
    ]
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return app


class _Reading:
    """Requests that change nothing; Starlette runs them in threads."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def endpoints(self) -> dict[str, Callable[[Request], Response]]:
        session = self._session
        return {
            "state": lambda _: json_response(session.state()),
            "view": self.view,
            "items": self.items,
            "points": lambda _: Response(session.points(), media_type=_BINARY),
            "map": self.map,
            "groups": lambda _: json_response({"groups": session.groups()}),
            "history": self.history,
            "audit": lambda _: json_response(session.next_audit()),
            "enough": lambda _: json_response(session.enough()),
        }

    def view(self, request: Request) -> Response:
        query = fields.parse_view(request.query_params, self._session.n_items)
        numbers = self._session.view(query).astype("<i4", copy=False)
        return Response(numbers.tobytes(), media_type=_BINARY)

    def items(self, request: Request) -> Response:
        ids = fields.parse_numbers(request.query_params.get("ids", ""), self._session.n_items)
        return json_response({"items": self._session.items(ids)})

    def map(self, _: Request) -> Response:
        found = self._session.map()
        if found is None:
            raise HTTPException(404, "There is no map yet.")
        projection, points = found
        return Response(points, media_type=_BINARY, headers={"X-Projection": projection})

    def history(self, request: Request) -> Response:
        before, limit = fields.parse_history(request.query_params)
        return json_response({"entries": self._session.history(before, limit)})


class _Writing:
    """Requests that change the review; each returns what the session returned."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def endpoints(self) -> dict[str, Callable[[Request], Any]]:
        return {
            "answers": partial(_change, self.answer),
            "undo": partial(_change, self.undo),
            "classes": partial(_change, self.change_class),
            "goal": partial(_change, self.set_goal),
            "finish": partial(_change, self.finish, status=202),
        }

    def answer(self, content: bytes) -> dict[str, Any]:
        body = fields.parse_body(content, fields.AnswerBody)
        checks.one_of("action", body["action"], fields.ACTIONS)
        return self._session.answer(
            body["action"],
            fields.check_numbers(body["ids"], self._session.n_items),
            label=body.get("label") or "",
            client=body.get("client", ""),
            seen=body.get("seen", 0),
            items=body.get("items", ""),
            replace=body.get("replace", False),
        )

    def undo(self, content: bytes) -> dict[str, Any]:
        body = fields.parse_body(content, fields.UndoBody)
        return self._session.undo(client=body.get("client", ""), to=body.get("to"))

    def change_class(self, content: bytes) -> dict[str, Any]:
        body = fields.parse_body(content, fields.ClassBody)
        checks.one_of("action", body["action"], fields.CLASS_ACTIONS)
        return self._session.change_class(
            body["action"], body["name"], body.get("to") or "", client=body.get("client", "")
        )

    def set_goal(self, content: bytes) -> dict[str, Any]:
        body = fields.parse_body(content, fields.GoalBody)
        checks.between("goal", body["goal"], 0, 1)
        return self._session.set_goal(body["goal"], client=body.get("client", ""))

    def finish(self, content: bytes) -> dict[str, Any]:
        body = fields.parse_body(content, fields.FinishBody)
        self._session.finish(body["exports"], client=body.get("client", ""))
        return {}


class _Images:
    """Requests for pictures, few of which are decoded at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pictures = Pictures()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def send(self, request: Request) -> Response:
        number = fields.parse_item(request.path_params["number"], self._session.n_items)
        size = fields.parse_size(request.query_params, SIZES)
        if number is None:
            raise HTTPException(404, "There is no such item.")
        found = await run_in_threadpool(self._session.image_file, number)
        if found is None:
            raise HTTPException(404, "This file cannot be read.")
        path, digest = found
        # Numbers mean other images after the run was made again, so that a browser must ask.
        headers = {"ETag": f'"{digest}-{size}"', "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        picture = self._pictures.find(digest, size)
        if picture is None:
            picture = await self._make(request, path, digest, size)
        return Response(picture, media_type="image/jpeg", headers=headers)

    async def _make(self, request: Request, path: Path, digest: str, size: int) -> bytes:
        async with self._slots:
            if await request.is_disconnected():  # the page was scrolled on
                raise HTTPException(404, "Nobody waits for this picture.")
            try:
                return await run_in_threadpool(self._pictures.make, path, digest, size)
            except DataError as error:
                raise HTTPException(404, str(error)) from error


async def _change(
    change: Callable[[bytes], dict[str, Any]], request: Request, status: int = 200
) -> Response:
    content = await request.body()
    return json_response(await run_in_threadpool(change, content), status)


async def _send_events(session: Session, streams: EventStreams, request: Request) -> Response:
    query = request.query_params
    since = fields.parse_entry(request.headers.get("last-event-id") or query.get("since") or "0")
    return await streams.open(partial(session.subscribe, since))


def _send_page(
    pages: Mapping[str, tuple[bytes, str]], request: Request, name: str = ""
) -> Response:
    """Send a file of the page; only those that were read at the start exist."""
    found = pages.get(name or request.path_params["name"])
    if found is None:
        raise HTTPException(404, "There is no such file.")
    content, kind = found
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def _read_pages(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Read the files of the page: content and media type by name."""
    return {
        path.name: (path.read_bytes(), _KINDS[path.suffix])
        for path in sorted(folder.glob("*.*"))
        if path.suffix in _KINDS
    }


def _answer_conflict(_: Request, error: Conflict) -> Response:
    return json_response({"error": str(error), "conflicts": error.items}, 409)
