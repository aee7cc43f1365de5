"""Kill the server of a review at random moments while a script answers: nothing is lost."""

import http.client
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from infoshot import labelling
from infoshot.reviewing.session import Session
from tests.labelling.commands import rows
from tests.reviewing.client import Client

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
N_MOMENTS = 5 * int(os.environ.get("INFOSHOT_KILL_MOMENTS", "6"))
PACE = 0.1  # seconds between answers
CLASSES = ("cat", "dog", "eel", "(none)")


def start(run):
    """Start the command; return the process and a client of its server."""
    process = subprocess.Popen(
        [sys.executable, "-m", "infoshot", "review", str(run), "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    lines = [process.stdout.readline() for _ in range(3)]
    assert "token=" in lines[1], process.communicate()
    return process, Client(lines[1].strip())


class Person(threading.Thread):
    """Answers ten times a second, with breaks in which the run is solved again."""

    def __init__(self, client, dice, n_photos):
        super().__init__()
        self.client, self.dice, self.n_photos = client, dice, n_photos
        self.saved, self.last = {}, None  # acknowledged answers, and one that may be lost

    def run(self):
        for number in range(1000):
            photo, label = self.dice.randrange(1, self.n_photos), self.dice.choice(CLASSES)
            self.last = (photo, label)
            body = {"action": "label", "ids": [photo], "label": label, "client": "a", "seen": 10**9}
            if label == "(none)":
                body["action"] = "reject"
            try:
                reply = self.client.post("/api/answers", body)
            except (OSError, http.client.HTTPException):
                return
            assert reply.status == 200, reply.body
            self.saved[photo] = label
            time.sleep(PACE if number % 12 else 1.5)


def test_no_acknowledged_answer_is_lost(real_run):
    dice = random.Random(0)
    n_photos = len(rows(real_run / "labels.csv"))
    expected, n_answers, n_solves = {}, 0, 0
    for _ in range(N_MOMENTS):
        process, client = start(real_run)
        _check(client, expected, n_photos)
        person = Person(client, random.Random(dice.random()), n_photos)
        person.start()
        time.sleep(dice.uniform(0.1, 4))
        n_solves += client.get("/api/state").json()["solve"]["version"]
        process.kill()
        process.communicate()
        person.join()
        n_answers += len(person.saved)
        expected.update(person.saved)
        if person.last is not None and person.saved.get(person.last[0]) != person.last[1]:
            expected[person.last[0]] = None  # sent, but not acknowledged: both are right
        _check_readable(real_run)
    assert n_answers > N_MOMENTS
    assert n_solves > 0
    _check_after_all(real_run, expected, n_photos)


def _check(client, expected, n_photos):
    """Compare the answers that the server knows with those that it has acknowledged."""
    ids = ",".join(map(str, range(n_photos)))
    items = client.get(f"/api/items?ids={ids}").json()["items"]
    copies = {item["id"] for item in items if item["name"].startswith("cat8")}
    for item in items:
        wanted = expected.get(item["id"])
        if wanted is not None and item["id"] not in copies:
            assert item["answer"] == wanted, item


def _check_readable(run):
    """Read the run as every other command does, right after the kill."""
    sheet = run.parent / "look.csv"
    labelling.draw_audit(run, n=10**6, out=sheet)
    sheet.unlink()


def _check_after_all(run, expected, n_photos):
    """At last the pool is solved with all answers, and labels.csv has them."""
    session = Session(run)
    try:
        deadline = time.monotonic() + 60
        while session._has_pending() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not session._has_pending()
    finally:
        session.close()
    lines = rows(run / "labels.csv")
    for number, label in expected.items():
        if label is not None and not Path(lines[number]["path"]).name.startswith("cat8"):
            assert lines[number]["label"] == ("" if label == "(none)" else label)
            assert lines[number]["reason"] == "given"
