"""Requests to a real server, byte by byte as a browser or an attacker sends them."""

import http.client
import json
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass
class Reply:
    """A response."""

    status: int
    headers: dict
    body: bytes

    def json(self):
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


@dataclass
class Client:
    """Requests to a server, by default with its token."""

    url: str

    def __post_init__(self):
        parts = urlsplit(self.url)
        self.port = parts.port
        self.token = parts.query.partition("=")[2]

    def request(self, method, target, body=None, headers=(), *, token=True):
        """Send a request; a header of ``None`` is left out."""
        sent = {"Host": f"127.0.0.1:{self.port}", **dict(headers)}
        if token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None and "Transfer-Encoding" not in sent:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            lower = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, lower, response.read())
        finally:
            connection.close()

    def get(self, target, **more):
        return self.request("GET", target, **more)

    def post(self, target, content, **more):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        more.setdefault("headers", {"Content-Type": "application/json"})
        return self.request("POST", target, body, **more)

    @contextmanager
    def events(self, since=0, headers=()):
        """Open an event stream and yield a function that reads its next event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        headers = {"Authorization": f"Bearer {self.token}", **dict(headers)}
        connection.request("GET", f"/api/events?since={since}&client=a", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader("content-type").startswith("text/event-stream")

        def read():
            """Return the fields of the next event; empty at the end of the stream."""
            found = {}
            while line := response.readline():
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name:
                    found[name] = value
                elif "event" in found:
                    return found
                else:
                    found = {}
            return {}

        try:
            yield read
        finally:
            response.close()
            connection.close()
