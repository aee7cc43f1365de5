"""Requests of the page and what they are passed on as, over a real connection."""

import io
import json
import threading

import numpy as np
import pytest
from PIL import Image

from infoshot.reviewing.views import ViewQuery


def test_the_page_and_its_files_are_sent(client):
    page = client.get("/")
    assert (page.status, page.body) == (200, b"<!doctype html><title>the page</title>")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    script = client.get("/static/main.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    same = client.get("/static/main.js", headers={"If-None-Match": script.headers["etag"]})
    assert (same.status, same.body) == (304, b"")


def test_reading(client, session):
    assert client.get("/api/state").json() == session.state()
    assert client.get("/api/items?ids=4,0").json()["items"] == session.items([4, 0])
    assert client.get("/api/points").body == session.points()
    assert client.get("/api/groups").json() == {"groups": None}
    assert client.get("/api/audit").json() == session.next_audit()
    assert client.get("/api/enough").json() == session.enough()
    assert client.get("/api/history").json() == {"entries": [{"n": None, "limit": 100}]}
    asked = client.get("/api/history?before=7&limit=5").json()
    assert asked == {"entries": [{"n": 7, "limit": 5}]}


def test_views_are_little_endian_numbers(client, session):
    reply = client.get(
        "/api/view?view=class&class=a%26b&sort=similar&order=desc&pin=6&status=unsure&low=0.25"
        "&high=0.5&q=%C3%A9"
    )
    assert np.frombuffer(reply.body, "<i4").tolist() == [3, 1, 2]
    assert session.query == ViewQuery(
        view="class", label="a&b", sort="similar", order="desc", pin=6, status="unsure",
        low=0.25, high=0.5, text="é",
    )  # fmt: skip
    client.get("/api/view?view=all")
    assert session.query == ViewQuery(view="all")


def test_the_map_is_missing_until_it_is_computed(client, session, monkeypatch):
    assert client.get("/api/map").status == 404
    points = np.array([[0.5, np.nan]], "<f4").tobytes()
    monkeypatch.setattr(session, "map", lambda: ("tsne", points), raising=False)
    reply = client.get("/api/map")
    assert (reply.body, reply.headers["x-projection"]) == (points, "tsne")


def test_writing(client, session):
    body = {"action": "label", "ids": [1, 2], "label": "cat", "client": "a", "seen": 3}
    assert client.post("/api/answers", body).json() == {"entry": 1, "n_changed": 2}
    client.post("/api/undo", {"client": "a", "to": 0})
    client.post("/api/undo", {})
    client.post("/api/classes", {"action": "rename", "name": "x", "to": "y", "client": "a"})
    client.post("/api/goal", {"goal": 0.9})
    finished = client.post("/api/finish", {"exports": ["imagefolder"], "client": "b"})
    assert (finished.status, finished.json()) == (202, {})
    assert session.calls == [
        ("answer", "label", (1, 2), "cat", "a", 3, False),
        ("undo", "a", 0),
        ("undo", "", None),
        ("change_class", "rename", "x", "y", "a"),
        ("set_goal", 0.9, ""),
        ("finish", ("imagefolder",), "b"),
    ]


def test_the_session_is_never_called_in_the_thread_of_the_server(client, session):
    client.post("/api/goal", {"goal": 0.9})
    assert session.threads
    assert "infoshot review" not in session.threads
    assert "infoshot review" in {thread.name for thread in threading.enumerate()}


def test_conflicts_are_returned(client, session):
    body = {"action": "label", "ids": [3], "label": "taken"}
    reply = client.post("/api/answers", body)
    assert reply.status == 409
    assert reply.json()["conflicts"] == [{"id": 3, "answer": "dog"}]
    assert reply.json()["error"]
    assert client.post("/api/answers", {**body, "replace": True}).status == 200


def test_errors_of_the_session_are_one_sentence(client):
    reply = client.post("/api/answers", {"action": "label", "ids": [3], "label": "unknown"})
    assert (reply.status, reply.json()) == (400, {"error": "There is no class 'unknown'."})


ANSWER = {"action": "label", "ids": [1], "label": "cat", "client": "a", "seen": 0, "replace": False}
BODIES = {
    "/api/answers": ANSWER,
    "/api/undo": {"client": "a", "to": 1},
    "/api/classes": {"action": "merge", "name": "a", "to": "b", "client": "a"},
    "/api/goal": {"goal": 0.9, "client": "a"},
    "/api/finish": {"exports": ["imagefolder"], "client": "a"},
}
VALUES = [
    None, True, -1, 1.5, 2**70, "x" * 2000, "\0", "\ud800", [], [None], [[1]], ["1"], [True], [1.0],
    [-1], [7], [2**63], {}, {"a": 1},
]  # fmt: skip
FINE = {  # values above that are of the right type
    "replace": [True], "label": [None], "to": [None], "exports": [[], ["1"]],
}  # fmt: skip


@pytest.mark.parametrize("target", BODIES)
def test_wrong_types_are_refused_for_every_field(target, client, session):
    for name in BODIES[target]:
        for value in VALUES:
            if any(value is fine or (value == fine and value != 1) for fine in FINE.get(name, ())):
                continue
            reply = client.post(target, {**BODIES[target], name: value})
            assert reply.status == 400, (name, value)
            assert reply.json()["error"].endswith("."), reply.body
    assert not session.calls


@pytest.mark.parametrize("target", BODIES)
def test_bodies_that_are_no_such_object_are_refused(target, client, session):
    bodies = [
        b"", b"{", b"\xff", b"null", b"[]", b'"a"', b"1", b"[" * 100_000, b'{"a":' * 100_000,
        b'{"action": NaN}', json.dumps({**BODIES[target], "more": 1}).encode(),
    ]  # fmt: skip
    for body in bodies:
        reply = client.post(target, body)
        assert reply.status == 400, body[:20]
        assert reply.json()["error"].endswith(".")
    assert not session.calls


QUERIES = [
    "/api/items", "/api/items?ids=", "/api/items?ids=1,,2", "/api/items?ids=-1", "/api/items?ids=7",
    "/api/items?ids=1e1", "/api/items?ids=%D9%A1", "/api/items?ids=99999999999999999999999",
    "/api/items?ids=" + ",".join(["1"] * 501),
    "/api/view?view=other", "/api/view?view=class", "/api/view?view=all&sort=size",
    "/api/view?view=all&order=up", "/api/view?view=all&sort=similar", "/api/view?view=all&pin=7",
    "/api/view?view=all&pin=x", "/api/view?view=all&status=x", "/api/view?view=all&low=nan",
    "/api/view?view=all&high=2", "/api/view?view=all&low=-1", "/api/view?view=all&low=inf",
    "/api/history?before=x", "/api/history?limit=0", "/api/history?limit=1001",
    "/api/history?limit=-1", "/api/events?since=x", "/api/events?since=-1",
    "/image/0?size=97", "/image/0?size=x", "/image/0?size=99999999999999999999",
]  # fmt: skip


def test_wrong_queries_are_refused_in_one_sentence(client):
    for target in QUERIES:
        reply = client.get(target)
        assert reply.status == 400, target
        assert reply.json()["error"].endswith(".")


def test_pictures_are_encoded_again(client):
    for size in (96, 160, 320, 640, 1600):
        reply = client.get(f"/image/0?size={size}")
        assert (reply.status, reply.headers["content-type"]) == (200, "image/jpeg")
        with Image.open(io.BytesIO(reply.body)) as image:
            width = min(size, 400)
            assert (image.format, image.size) == ("JPEG", (width, width * 3 // 4))
            assert not image.getexif()
        assert b"secret" not in reply.body
    same = client.get("/image/0?size=1600", headers={"If-None-Match": reply.headers["etag"]})
    assert (same.status, same.body) == (304, b"")
    assert reply.headers["cache-control"] == "private, no-cache"
    other = client.get("/image/0?size=96", headers={"If-None-Match": reply.headers["etag"]})
    assert other.status == 200


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_files_that_are_not_images_are_never_sent(number, client):
    reply = client.get(f"/image/{number}?size=160")
    assert reply.status == 404
    assert "<" not in reply.json()["error"]
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_names_with_scripts_are_data(client, session):
    session.names.append("</script><script>alert(1)</script>")
    reply = client.get("/api/state")
    assert reply.json()["classes"][-1]["name"] == session.names[-1]
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_unexpected_errors_are_one_sentence_and_logged(client, session, caplog):
    session.fails = RuntimeError("inner secret")
    reply = client.get("/api/state")
    assert reply.status == 500
    assert reply.json() == {"error": "The server failed to answer; its log says why."}
    assert client.get("/").status == 200
    assert [record.exc_info[1] for record in caplog.records] == [session.fails]
