"""Nobody gets in: tokens, names of the server, other sites, paths and sizes."""

import random
import socket

import pytest

from infoshot.reviewing.access import _LARGEST_BODY
from infoshot.reviewing.request_fields import ACTIONS
from tests.reviewing.conftest import SECRET

TARGETS = [
    "/", "/static/main.js", "/image/0?size=160", "/api/state", "/api/events", "/api/nothing",
    "/nothing",
]  # fmt: skip
COOKIE_RULES = {"HttpOnly", "Path=/", "SameSite=strict"}


def cookie(client, token=None):
    return {"Cookie": f"infoshot-review-{client.port}={token or client.token}"}


def refused(reply):
    """Whether nothing but a sentence was sent, without a cookie."""
    assert reply.status == 403
    assert "set-cookie" not in reply.headers
    assert b"the page" not in reply.body
    return len(reply.body) < 400


@pytest.mark.parametrize("target", TARGETS)
def test_a_missing_token_is_refused(target, client):
    assert refused(client.get(target, token=False))
    assert refused(client.post(target, {}, token=False))


@pytest.mark.parametrize("target", TARGETS)
def test_a_wrong_token_is_refused(target, client):
    wrong = ["", "x", client.token[:-1], client.token + "x", client.token.swapcase(), "\xe9" * 43]
    for token in wrong:
        assert refused(client.get(target, headers={"Authorization": f"Bearer {token}"}))
        assert refused(client.get(target, headers=cookie(client, token or "="), token=False))
    other_port = {"Cookie": f"infoshot-review-{client.port + 1}={client.token}"}
    assert refused(client.get(target, headers=other_port, token=False))
    assert refused(client.get(f"/?token={client.token[:-1]}", token=False))
    # Only the page takes a token from the address.
    if target != "/":
        address = f"{target}{'&' if '?' in target else '?'}token={client.token}"
        assert refused(client.get(address, token=False))


def test_the_address_gives_a_cookie_that_opens_the_page(client):
    reply = client.get(f"/?token={client.token}", token=False)
    assert (reply.status, reply.headers["location"]) == (303, "/")
    value, *rules = reply.headers["set-cookie"].split("; ")
    assert value == f"infoshot-review-{client.port}={client.token}"
    assert set(rules) == COOKIE_RULES
    assert client.get("/", headers={"Cookie": value}, token=False).status == 200
    assert client.get("/api/state", headers={"Cookie": value}, token=False).status == 200


def test_the_refusal_of_the_page_says_what_to_do(client):
    reply = client.get("/", token=False)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "open the address that infoshot review printed" in reply.body.decode()


@pytest.mark.parametrize("target", [*TARGETS, "/?token={token}"])
def test_foreign_hosts_are_refused(target, client):
    port = client.port
    hosts = [
        "evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1",
        f"127.0.0.1:{port + 1}", f"localhost.:{port}", f"0.0.0.0:{port}", "", None,
        f"127.0.0.1:{port}@evil.example", f"[::2]:{port}",
    ]  # fmt: skip
    for host in hosts:
        reply = client.get(target.format(token=client.token), headers={"Host": host})
        assert reply.status in (400, 403), host  # 400: not HTTP
        assert b"the page" not in reply.body
        assert "set-cookie" not in reply.headers


def test_own_names_are_accepted(client):
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert client.get("/", headers={"Host": f"{name}:{client.port}"}).status == 200


@pytest.mark.parametrize("target", [*TARGETS, "/?token={token}"])
def test_foreign_origins_are_refused(target, client, session):
    port = client.port
    origins = [
        "null", "http://evil.example", f"http://127.0.0.1:{port + 1}", "http://127.0.0.1",
        f"https://127.0.0.1:{port}", f"http://localhost:{port}", f"http://127.0.0.1:{port}.evil",
        "",
    ]  # fmt: skip
    for origin in origins:
        headers = {"Origin": origin, "Content-Type": "application/json", **cookie(client)}
        for method in ("GET", "POST"):
            reply = client.request(method, target.format(token=client.token), b"{}", headers)
            assert refused(reply), (method, origin)
    assert not session.calls


def test_the_own_origin_is_accepted(client):
    headers = {
        "Origin": f"http://127.0.0.1:{client.port}",
        "Sec-Fetch-Site": "same-origin",
        "Content-Type": "application/json",
        **cookie(client),
    }
    assert client.post("/api/undo", {}, headers=headers, token=False).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "odd"])
def test_requests_that_another_site_causes_are_refused(site, client, session):
    for target in TARGETS:
        headers = {"Sec-Fetch-Site": site, "Content-Type": "application/json", **cookie(client)}
        assert refused(client.get(target, headers=headers))
        assert refused(client.post(target, {}, headers=headers))
        for place in ("image", "iframe", "empty", "script"):
            framed = {**headers, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": place}
            assert refused(client.get(target, headers=framed))
            assert refused(client.get(f"/?token={client.token}", headers=framed))
    assert not session.calls


def test_another_site_may_link_to_the_address_with_the_token(client):
    headers = {
        "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document",
    }  # fmt: skip
    reply = client.get(f"/?token={client.token}", headers=headers, token=False)
    assert reply.status == 200  # not a redirect, which would lose the cookie
    assert client.token in reply.headers["set-cookie"]
    assert client.token not in reply.body.decode()
    assert b'content="0; url=/"' in reply.body
    assert refused(client.get("/?token=wrong", headers=headers, token=False))


@pytest.mark.parametrize("target", [*TARGETS, "/?token={token}", "/image/1", "/?token=wrong"])
def test_every_response_has_the_headers(target, client):
    for token in (True, False):
        if token and target == "/api/events":
            continue  # does not end
        reply = client.get(target.format(token=client.token), token=token)
        policy = reply.headers["content-security-policy"]
        assert policy == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"
        assert reply.headers["cross-origin-opener-policy"] == "same-origin"
        assert "server" not in reply.headers
        assert not any(name.startswith("access-control") for name in reply.headers)
        if target.startswith("/api") or reply.status >= 300:
            assert reply.headers["cache-control"] == "no-store"


TRICKS = [
    "/static/../../api.py", "/static/../api.py", "/static/%2e%2e/api.py", "/static/..%2fapi.py",
    "/static/%2e%2e%2f%2e%2e%2fapi.py", "/static/..\\api.py", "/static/..%5capi.py", "/static/",
    "/static", "/static//etc/passwd", "/static/%2fetc%2fpasswd", "/static/index.html%00",
    "/static/%00", "/static/notes.txt", "/static/index.html/", "/static/.", "/static/..",
    "/static/%c0%ae%c0%ae/api.py", "/static/INDEX.HTML", "/static/index.html::$DATA",
    "/image/-1", "/image/99999999999999999999", "/image/1.5", "/image/../run.json", "/image/",
    "/image/..%2frun.json", "/image/%2e%2e%2fsecret.txt", "/image/0%00", "/image/0x1", "/image/7",
    "/image/%D9%A1", "/image/1e1", "/image/+1", "/image/%201", "/image/0/0", "/image/run.json",
    "/api/../run.json", "/api/%2e%2e/secret.txt", "/api/state/", "/api/state/..", "/api/STATE",
    "//", "//etc/passwd", "/..", "/../secret.txt", "/%2e%2e/secret.txt", "/run.json", "/secret.txt",
    "/index.html", "/%00", "/.infoshot-review.json", "/review.jsonl", "http://evil.example/",
    "http://127.0.0.1/api/state", "/favicon.ico", "/api", "/api/", "/;", "/%",
]  # fmt: skip


def test_path_tricks_lead_nowhere(client):
    for target in TRICKS:
        reply = client.get(target)
        assert reply.status in (404, 405), target
        assert reply.json()["error"].endswith(".")
        assert SECRET not in reply.body.decode()
        assert client.post(target, {}).status in (404, 405), target
        assert client.get(target, token=False).status == 403, target


@pytest.mark.parametrize("target", [*TARGETS, "/api/answers"])
def test_other_methods_are_refused(target, client, session):
    for method in ("HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", "X"):
        reply = client.request(method, target, headers=cookie(client))
        assert (reply.status, reply.headers["allow"]) == (405, "GET, POST"), method
    method = "GET" if target == "/api/answers" else "POST"
    wrong = client.request(method, target, b"{}", {"Content-Type": "application/json"})
    assert wrong.status in (404, 405)
    assert not session.calls


def test_only_json_is_accepted(client, session):
    kinds = [
        None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
        "application/json-seq", "text/json", "application", "text/plain; application/json",
    ]  # fmt: skip
    for kind in kinds:
        reply = client.post("/api/undo", b"{}", headers={"Content-Type": kind})
        assert reply.status == 415, kind
    assert not session.calls
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        assert client.post("/api/undo", b"{}", headers={"Content-Type": kind}).status == 200


def test_large_bodies_are_refused(client, session):
    fits = b"{}" + b" " * (_LARGEST_BODY - 2)
    assert client.post("/api/undo", fits).status == 200
    assert client.post("/api/undo", fits + b" ").status == 413
    assert len(session.calls) == 1


def test_large_bodies_of_unknown_length_are_refused(client, session):
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    head = (
        f"POST /api/undo HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
        f"Authorization: Bearer {client.token}\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall(head.encode() + piece * 65)
        assert connection.recv(12) == b"HTTP/1.1 413"
    assert not session.calls


def test_long_addresses_are_refused(client):
    assert client.get("/api/view?view=all&q=" + "x" * 8000).status == 200
    assert client.get("/api/view?view=all&q=" + "x" * 9000).status == 414
    assert client.get("/" + "x" * 100_000).status == 414


ENDPOINTS = ["state", "view", "items", "history", "answers", "undo", "classes", "goal", "finish",
             "map", "points", "groups", "audit", "enough"]  # fmt: skip
PARTS = ["answers", "events", "", "/", "..", "%2e", "%00", "api", "static", "image", "index.html",
         "0", "-1", "1.5", "9" * 30, "é", "%ff", "secret.txt", "run.json", "*", "\\"]  # fmt: skip
NAMES = ["view", "class", "sort", "order", "pin", "status", "low", "high", "q", "ids", "before",
         "limit", "since", "size", "token", "client"]  # fmt: skip
TEXTS = ["", "0", "1,2", "-1", "nan", "inf", "1e999", "all", "class", "similar", "9" * 40, "%00",
         "%ff", "x" * 300, "<script>", "../..", "unsure", "[]", "160"]  # fmt: skip
FIELDS = ["action", "ids", "label", "client", "seen", "replace", "to", "name", "goal", "exports"]


def random_body(chance):
    """Mostly what one of the requests needs, with some entries replaced by others."""
    body = dict(
        chance.choice(
            [
                {"action": chance.choice(ACTIONS), "ids": [chance.randrange(7)], "label": "cat"},
                {"to": chance.randrange(5)},
                {"action": chance.choice(["add", "rename", "merge"]), "name": "cat", "to": "dog"},
                {"goal": chance.random()},
                {"exports": []},
            ]
        )
    )
    for _ in range(chance.choice([0, 0, 1, 3])):
        body[chance.choice(FIELDS)] = random_value(chance)
    return body


def random_value(chance, depth=0):
    values = [None, True, 0, -1, 2**62, 0.5, 1e300, "", "label", "cat", "add", "\0", "\ud800", "é"]
    kind = chance.random()
    if kind < 0.15 and depth < 3:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 0.25 and depth < 3:
        return {name: random_value(chance, depth + 1) for name in chance.sample(FIELDS, 2)}
    return chance.choice(values)


def random_target(chance):
    start = chance.choice(["/api/", "/image/", "/static/", "/"])
    path = start + "/".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 3)))
    if chance.random() < 0.5:
        path = f"/api/{chance.choice(ENDPOINTS)}"
    pairs = [f"{chance.choice(NAMES)}={chance.choice(TEXTS)}" for _ in range(chance.randrange(4))]
    return (path + "?" + "&".join(pairs)).encode().decode("latin-1").replace("Ã©", "%C3%A9")


def random_requests(client, chance, n):
    """Send random requests; none may fail, or send content of a file. Return the statuses."""
    statuses = set()
    for _ in range(n):
        method = chance.choice(["GET", "GET", "POST", "POST", "PUT", "HEAD", "OPTIONS"])
        target = random_target(chance)
        if method == "GET" and target.startswith("/api/events"):
            method = "POST"  # a stream does not end
        headers = {
            "Content-Type": chance.choice(["application/json"] * 3 + ["text/plain", ""]),
            **chance.choice([{}, {}, {}, {"Origin": "http://evil"}, {"Host": "evil"}]),
        }
        content = random_body(chance)
        if method == "POST":
            reply = client.post(target, content, headers=headers)
        else:
            reply = client.request(method, target, headers=headers)
        statuses.add(reply.status)
        assert reply.status < 500, (method, target, content)
        text = reply.body.decode("latin-1")
        assert "Traceback" not in text
        assert SECRET not in text
        if reply.status > 403 and method != "HEAD":
            assert reply.json()["error"].endswith(".")
    return statuses


def test_random_requests_are_answered_or_refused(client, caplog):
    statuses = random_requests(client, random.Random(16), 1000)
    assert {200, 400, 403, 404, 405, 415} <= statuses
    assert not caplog.records
