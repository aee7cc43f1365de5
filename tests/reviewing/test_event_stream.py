"""Events reach every open page; streams end with their client and with the server."""

import http.client
import json
import time
from contextlib import ExitStack

import pytest

from infoshot.reviewing import event_stream


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stream_starts_with_earlier_entries(client):
    for _ in range(3):
        client.post("/api/undo", {})
    with client.events(since=1) as read:
        assert [read()["id"], read()["id"]] == ["2", "3"]
        client.post("/api/goal", {"goal": 0.9})
        event = read()
        assert (event["event"], event["id"]) == ("entry", "4")
        assert json.loads(event["data"]) == {"n": 4, "action": "set_goal"}


def test_a_browser_that_connects_again_gets_what_it_missed(client):
    for _ in range(3):
        client.post("/api/undo", {})
    with client.events(since=0, headers={"Last-Event-ID": "2"}) as read:
        assert read()["id"] == "3"


def test_many_clients_get_every_event_in_order(client, session):
    with ExitStack() as streams:
        readers = [streams.enter_context(client.events()) for _ in range(20)]
        for number in range(10):
            body = {"action": "label", "ids": [number % 5], "label": "cat"}
            assert client.post("/api/answers", body).json()["entry"] == number + 1
        for read in readers:
            assert [read()["id"] for _ in range(10)] == [str(n + 1) for n in range(10)]
    wait_until(lambda: not session.subscriptions)


def test_a_client_that_disconnects_is_noticed(client, session):
    with client.events():
        wait_until(lambda: len(session.subscriptions) == 1)
    wait_until(lambda: not session.subscriptions)


def test_a_client_that_falls_far_behind_must_connect_again(client, session):
    with client.events() as read:
        wait_until(lambda: len(session.subscriptions) == 1)
        (subscription,) = session.subscriptions
        subscription.close()  # as a session does if too many events wait
        assert read() == {}


def test_the_number_of_streams_is_limited(client, session, monkeypatch):
    monkeypatch.setattr(event_stream, "_MOST_STREAMS", 2)
    with client.events(), client.events():
        reply = client.get("/api/events")
        assert reply.status == 429
        assert reply.json()["error"] == "At most 2 pages can be open at once."
    wait_until(lambda: not session.subscriptions)
    with client.events():
        pass


def test_a_refused_subscription_does_not_count(client, session, monkeypatch):
    monkeypatch.setattr(event_stream, "_MOST_STREAMS", 1)
    for _ in range(3):
        assert client.get("/api/events?since=x").status == 400
    with client.events():
        pass


def test_quiet_streams_send_comments(client, monkeypatch):
    monkeypatch.setattr(event_stream, "_BEAT", 0.1)
    monkeypatch.setattr(event_stream, "_WAIT", 0.05)
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=20)
    connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {client.token}"})
    response = connection.getresponse()
    assert response.readline() == b"retry: 1000\n"
    lines = [response.readline() for _ in range(5)]
    assert lines == [b"\n", b":\n", b"\n", b":\n", b"\n"]
    response.close()
    connection.close()


def test_stopping_does_not_wait_for_open_streams(opened, client, session):
    with client.events() as first, client.events() as second:
        start = time.monotonic()
        opened.stop()
        assert time.monotonic() - start < 3
        assert first() == second() == {}  # the streams ended cleanly
    assert not session.subscriptions
    assert session.closed


def test_pictures_are_sent_while_many_streams_are_open(client):
    with ExitStack() as streams:
        for _ in range(50):  # more than the threads that other requests use
            streams.enter_context(client.events())
        start = time.monotonic()
        assert client.get("/image/0?size=96").status == 200
        assert client.post("/api/undo", {}).status == 200
        assert time.monotonic() - start < 2


@pytest.mark.parametrize("data", [{"name": "a\nevent: x"}, {"name": "\u2028"}, {"name": "\udce9"}])
def test_data_stay_on_one_line(data):
    text = event_stream.format_event("entry", data, 3)
    event, number, line, *rest = text.decode("ascii").split("\n")
    assert (event, number, rest) == ("event: entry", "id: 3", ["", ""])
    assert json.loads(line.removeprefix("data: ")) == data
