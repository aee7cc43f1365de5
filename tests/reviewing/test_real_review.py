"""The server with a real run: what HTTP returns, what is on the disk, and hostile requests."""

import io
import json
import random

import numpy as np
import pytest
from PIL import Image

from infoshot import review
from infoshot.reviewing import api
from infoshot.reviewing.session import Session
from tests.reviewing.client import Client
from tests.reviewing.test_access import random_requests


@pytest.fixture
def client(real_run, monkeypatch):
    """A client of a review that does not compute in the background."""
    monkeypatch.setattr(api, "Session", lambda run: Session(run, compute=False))
    with review(real_run, open_browser=False) as opened:
        yield Client(opened.url)


def test_what_was_answered_is_on_the_disk(client, real_run):
    state = client.get("/api/state").json()
    numbers = np.frombuffer(client.get("/api/view?view=doubtful").body, "<i4").tolist()
    assert len(numbers) == state["n_photos"] - 1  # all but the unreadable one
    name = state["classes"][0]["name"]
    body = {"action": "label", "ids": numbers[:3], "label": name, "client": "a", "seen": 0}
    entry = client.post("/api/answers", body).json()["entry"]
    items = client.get(f"/api/items?ids={','.join(map(str, numbers[:3]))}").json()["items"]
    assert [item["answer"] for item in items] == [name] * 3
    assert len((real_run / "review.jsonl").read_text().splitlines()) >= 1
    with client.events() as read:
        event = read()
        assert (event["event"], int(event["id"])) == ("entry", entry)
    other = {**body, "label": state["classes"][1]["name"], "client": "b"}
    reply = client.post("/api/answers", other)
    assert reply.status == 409
    assert {item["answer"] for item in reply.json()["conflicts"]} == {name}


def test_every_item_has_a_picture_except_the_unreadable(client):
    state = client.get("/api/state").json()
    n_items = state["n_photos"] + state["n_examples"]
    statuses = []
    for number in range(n_items):
        reply = client.get(f"/image/{number}?size=96")
        statuses.append(reply.status)
        if reply.status == 200:
            with Image.open(io.BytesIO(reply.body)) as image:
                assert (image.format, image.size) == ("JPEG", (40, 40))
    assert statuses.count(404) == state["n_unreadable"] == 1
    assert set(statuses) == {200, 404}
    assert client.get(f"/image/{n_items}?size=96").status == 404


def test_the_log_does_not_hold_the_token(client, real_run):
    client.post("/api/goal", {"goal": 0.9, "client": "a"})
    holders = [path.name for path in real_run.rglob("*") if path.is_file()
               and client.token.encode() in path.read_bytes()]  # fmt: skip
    assert holders == [".infoshot-review.json"]


def test_random_requests_never_break_the_session(client, real_run, caplog):
    before = json.loads((real_run / "run.json").read_text())
    statuses = random_requests(client, random.Random(5), 1000)
    assert {200, 202, 400, 403, 404, 405, 415} <= statuses
    assert not caplog.records
    assert client.get("/api/state").status == 200
    assert json.loads((real_run / "run.json").read_text()) == before
