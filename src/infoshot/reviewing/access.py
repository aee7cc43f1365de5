"""Who may use the page: checks of every request, and headers of every response.

The page is open to whoever has the token. A browser sends the cookie that holds it with requests of
other pages too, so requests that another page causes are refused: by their ``Host`` (a foreign name
that resolves to this machine), by their ``Origin``, and by ``Sec-Fetch-Site``.
"""

import logging
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from infoshot.reviewing.address import Address, format_host
from infoshot.reviewing.json_responses import error_response, failure_response

_LARGEST_BODY = 4 * 2**20
_LONGEST_ADDRESS = 8192
_LOG = logging.getLogger(__name__)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NO_TOKEN = (
    "This address lacks the token of the review: open the address that infoshot review printed."
)
_LOCKED_PAGE = (
    '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>InfoShot</title>\n'
    f"<p>{_NO_TOKEN}</p>\n</html>\n"
)
_ENTRANCE = (
    '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>InfoShot</title>\n'
    '<meta http-equiv="refresh" content="0; url=/">\n<p><a href="/">Open the review</a></p>\n'
    "</html>\n"
)


class Guard:
    """An ASGI application that lets only allowed requests through to another one.

    Parameters
    ----------
    app
        The application.
    address
        Where the server is reached, and its token.
    """

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self._app = app
        self._address = address
        self._hosts = address.hosts()
        self._cookie = f"infoshot-review-{address.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            raise ValueError(f"{scope['type']} is not supported")
        outgoing = _Outgoing(send)
        try:
            response = self._check(scope)
            if response is None:
                await self._app(scope, _Incoming(receive).receive, outgoing.send)
            else:
                await response(scope, receive, outgoing.send)
        except HTTPException as error:
            await self._refuse(error, scope)(scope, receive, outgoing.send)
        except ClientDisconnect:
            pass
        except Exception:
            _LOG.exception("The request %s %r failed.", scope["method"], scope["path"])
            if not outgoing.started:
                await failure_response()(scope, receive, outgoing.send)

    def _refuse(self, error: HTTPException, scope: Scope) -> Response:
        if error.status_code == 403 and scope["path"] == "/":
            return HTMLResponse(_LOCKED_PAGE, 403)
        return error_response(error)

    def _check(self, scope: Scope) -> Response | None:
        """Raise ``HTTPException`` for what is not allowed; answer a request that brings a token."""
        headers = Headers(scope=scope)
        self._check_host(scope, headers)
        if scope["method"] not in ("GET", "POST"):
            raise HTTPException(405, "Only GET and POST are allowed.", {"Allow": "GET, POST"})
        if len(scope["raw_path"]) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            raise HTTPException(414, f"An address may have {_LONGEST_ADDRESS} bytes at most.")
        token = _find_token(scope)
        _check_origin(headers, enters=token is not None)
        if token is not None:
            return self._enter(token, headers)
        if not self._has_token(headers):
            raise HTTPException(403, _NO_TOKEN)
        if scope["method"] == "POST":
            _check_body(headers)
        return None

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        own = self._hosts
        if self._address.is_wildcard and scope.get("server"):
            own = own | {f"{format_host(scope['server'][0])}:{self._address.port}"}
        if host not in own:
            raise HTTPException(403, "This is not a name of the server of the review.")

    def _enter(self, token: str, headers: Headers) -> Response:
        """Exchange the token of the address for a cookie."""
        if not self._is_token(token):
            raise HTTPException(403, _NO_TOKEN)
        # A browser does not send a strict cookie while it follows a redirect from another site, as
        # from a notebook. A page that leads on is of this site.
        comes_from_site = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        response = RedirectResponse("/", 303) if comes_from_site else HTMLResponse(_ENTRANCE)
        response.set_cookie(self._cookie, self._address.token, httponly=True, samesite="strict")
        return response

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._is_token(bearer.strip())
        return self._is_token(cookie_parser(headers.get("cookie", "")).get(self._cookie, ""))

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._address.token.encode())


class _Outgoing:
    """Adds the headers of every response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


class _Incoming:
    """Limits the size of a body whose length was not declared."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._n_bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._n_bytes += len(message.get("body", b""))
        if self._n_bytes > _LARGEST_BODY:
            raise _too_large()
        return message


def _find_token(scope: Scope) -> str | None:
    """Return the token that an address holds, ``None`` if the request is another one."""
    if (scope["method"], scope["path"]) != ("GET", "/"):
        return None
    query: Mapping[str, list[str]] = parse_qs(scope["query_string"].decode("latin-1"))
    return query["token"][0] if "token" in query else None


def _check_origin(headers: Headers, *, enters: bool) -> None:
    """Refuse what another page causes, except that it may lead to the page with the token."""
    foreign = "A page of another origin must not use this server."
    own = f"http://{headers['host']}".lower()
    if headers.get("origin", own).lower() != own:
        raise HTTPException(403, foreign)
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return
    if not (enters and headers.get("sec-fetch-dest") == "document"):
        raise HTTPException(403, foreign)


def _check_body(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "The content type must be application/json.")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > _LARGEST_BODY:
        raise _too_large()


def _too_large() -> HTTPException:
    return HTTPException(413, f"A request may have {_LARGEST_BODY // 2**20} MB at most.")
