"""The HTTP interface of `infoshot review` over a made-up pool, for tests of the page alone."""

import contextlib
import json
import queue
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import infoshot.reviewing
from tests.reviewing.fake_pool import ConflictError, FakePool

STATIC = Path(infoshot.reviewing.__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Handler(BaseHTTPRequestHandler):
    """Requests of one connection; `server.pool` and `server.paths` are shared."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.connections.append(self.connection)

    def log_message(self, *args):
        pass

    def reply(self, body, kind="application/json", status=200, **headers):
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def reply_in_part(self):
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self):
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        self.server.paths.append(self.path)
        if url.path == "/" or url.path.startswith("/static/"):
            file = STATIC / (url.path.removeprefix("/static/").strip("/") or "index.html")
            if file.is_file():
                self.reply(file.read_bytes(), TYPES[file.suffix], Cache_Control="max-age=60")
            else:
                self.reply({"error": "There is no such file."}, status=404)
        elif url.path.startswith("/image/"):
            number = int(url.path.removeprefix("/image/"))
            if number in self.server.pool.without_picture:
                self.reply({"error": "This file cannot be read."}, status=404)
                return
            body = self.server.pool.picture(number, int(query.get("size", 160)))
            self.reply(body, "image/jpeg", Cache_Control="max-age=3600")
        elif url.path == "/api/events":
            self.stream(int(query.get("since", 0)))
        else:
            with self.server.pool.lock:
                self.read(url.path.removeprefix("/api/"), query)

    def read(self, name, query):
        pool = self.server.pool
        if name == "items":
            self.reply({"items": [pool.item(int(i)) for i in query["ids"].split(",")]})
        elif name == "view":
            self.reply(pool.view(query).tobytes(), "application/octet-stream")
        elif name == "points":
            self.reply(pool.points(), "application/octet-stream")
        elif name == "map":
            self.reply(pool.xy.tobytes(), "application/octet-stream", X_Projection="pca")
        elif name == "groups":
            self.reply({"groups": pool.groups()})
        elif name == "history":
            before = int(query["before"]) if "before" in query else None
            self.reply({"entries": pool.history(before, int(query.get("limit", 100)))})
        elif name == "audit":
            self.reply(pool.next_audit())
        else:
            self.reply({"state": pool.state, "enough": pool.enough}[name]())

    def stream(self, since):
        pool = self.server.pool
        events = pool.subscribe(since)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.wfile.write(b": connected\n\n")
            self.wfile.flush()
            while not self.server.stopping:
                try:
                    event, data, entry = events.get(timeout=0.1)
                except queue.Empty:
                    continue
                while self.server.owner.hold_events:
                    time.sleep(0.05)
                number = f"id: {entry}\n" if entry else ""
                text = f"event: {event}\n{number}data: {json.dumps(data)}\n\n"
                self.wfile.write(text.encode())
                self.wfile.flush()
        except OSError:
            pass
        finally:
            pool.listeners.remove(events)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.paths.append(self.path)
        pool = self.server.pool
        name = self.path.removeprefix("/api/")
        calls = {
            "answers": pool.answer, "undo": pool.undo, "classes": pool.change_class,
            "goal": pool.set_goal, "finish": lambda exports, client: pool.finish() or {},
        }  # fmt: skip
        self.server.posted.append((name, body))
        if self.server.owner.refuse:
            self.reply({"error": "The disk is full."}, status=500)
            return
        try:
            with pool.lock:
                answer = calls[name](**body)
            if self.server.owner.lose_replies:
                self.reply_in_part()
            else:
                self.reply(answer)
        except ConflictError as error:
            self.reply({"error": "Another person answered differently.",
                        "conflicts": error.args[0]}, status=409)  # fmt: skip
        except ValueError as error:
            self.reply({"error": str(error)}, status=400)


class QuietServer(ThreadingHTTPServer):
    """The browser gives up pictures that scroll out of sight: nothing to report."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class FakeServer:
    """A server that can stop and come back on its port."""

    def __init__(self, pool=None, port=0):
        self.pool = pool or FakePool()
        self.port = port
        self.paths, self.posted = [], []
        self.refuse = self.lose_replies = self.hold_events = False
        self.start()

    def start(self):
        self.http = QuietServer(("127.0.0.1", self.port), Handler)
        self.http.owner = self
        self.http.pool, self.http.paths, self.http.posted = self.pool, self.paths, self.posted
        self.http.stopping, self.http.connections = False, []
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def renew(self, pool):
        """Another pool behind the same address."""
        self.pool = self.http.pool = pool
        self.refuse = self.lose_replies = self.hold_events = False
        self.paths.clear()
        self.posted.clear()

    def stop(self):
        self.http.stopping = True
        self.http.shutdown()
        self.http.server_close()
        for connection in self.http.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()


if __name__ == "__main__":
    n_photos, n_classes = (int(text) for text in sys.argv[1:3])
    names = [f"class {k:03d}" for k in range(n_classes)]
    server = FakeServer(FakePool(n_photos, names), port=8765)
    server.thread.join()
