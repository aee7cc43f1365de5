"""The solver in the loop: real solves in the background of a review."""

import json
import shutil
import time

import numpy as np
import pytest

from infoshot import labelling
from infoshot.reviewing.session import Session
from infoshot.reviewing.views import ViewQuery
from tests.labelling.commands import rows
from tests.reviewing.test_session import item_of, number_of, truth_of

_PATIENCE = 120  # seconds, on a busy machine


@pytest.fixture
def session(real_run):
    session = Session(real_run)
    yield session
    session.close()


@pytest.fixture
def events(session):
    subscription = session.subscribe(0)
    yield subscription
    subscription.close()


def wait_for(events, name, accept=lambda data: True):
    """Return the data of the next event of a name that is accepted."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        event = events.get(1)
        if event is not None and event.name == name and accept(event.data):
            return event.data
    pytest.fail(f"no event {name}")


def wait_for_solve(events, version=1):
    return wait_for(events, "solve", lambda s: s["state"] == "idle" and s["version"] >= version)


def test_answers_become_examples_and_stay(session, events, real_run):
    numbers = [number_of(session, f"{name}{n}.png") for name in ("cat", "dog") for n in (9, 10)]
    for number in numbers:
        session.answer("label", [number], label="eel", client="a")
    before = [item["label"] for item in session.items(range(session.n_photos))]
    assert wait_for(events, "solve")["state"] == "waiting"
    state = wait_for_solve(events)
    after = session.items(range(session.n_photos))
    assert [after[number]["label"] for number in numbers] == ["eel"] * 4
    changed = [n for n in range(session.n_photos) if after[n]["label"] != before[n]]
    assert state["n_changed"] == len(changed)
    assert session.view(ViewQuery("changed")).tolist() == sorted(
        changed, key=lambda n: after[n]["margin"]
    )
    assert all(after[n]["changed"] for n in changed)
    lines = rows(real_run / "labels.csv")
    assert [line["label"] for line in lines] == [item["label"] for item in after]
    assert json.loads((real_run / "run.json").read_text())["review"]["n_entries"] == 4
    assert session.view(ViewQuery("suggested")).size > 0
    assert not set(session.view(ViewQuery("suggested")).tolist()) & set(numbers)


def test_the_same_answers_give_the_labels_of_label_add(session, events, real_run, tmp_path):
    photos = {item_of(session, f"cat{n}.png")["path"]: "dog" for n in (11, 12, 13)}
    other = tmp_path / "other"

    shutil.copytree(real_run, other)
    for path, label in photos.items():
        number = next(i["id"] for i in session.items(range(session.n_photos)) if i["path"] == path)
        session.answer("label", [number], label=label)
    wait_for_solve(events)
    labelling.add_labels(other, photos)
    for line, wanted in zip(rows(real_run / "labels.csv"), rows(other / "labels.csv"), strict=True):
        assert [line[key] for key in ("path", "label")] == [
            wanted[key] for key in ("path", "label")
        ]
        if wanted["confidence"]:  # with another number of threads sums are rounded differently
            assert float(line["confidence"]) == pytest.approx(float(wanted["confidence"]), abs=1e-3)


def test_audit_answers_do_not_start_a_solve(session, events):
    number = session.next_audit()["id"]
    session.answer("audit", [number], label=truth_of(session.items([number])[0]))
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        event = events.get(0.2)
        assert event is None or event.name != "solve" or event.data["state"] == "idle"


def test_labels_that_change_begin_a_new_round(session, events):
    number = session.next_audit()["id"]
    session.answer("audit", [number], label=truth_of(session.items([number])[0]))
    assert session.enough()["promise"] is not None
    session.answer("label", [number_of(session, "cat9.png")], label="eel")
    wait_for_solve(events)
    assert session.enough()["promise"] is None  # nothing is promised until the next answer
    number = session.next_audit()["id"]
    session.answer("audit", [number], label=truth_of(session.items([number])[0]))
    found = session.enough()
    assert (found["audit"]["round"], found["audit"]["n"]) == (2, 2)
    assert found["promise"] is not None


def test_another_command_is_noticed(session, events, real_run):
    path = item_of(session, "cat9.png")["path"]
    labelling.add_labels(real_run, {path: "eel"})
    wait_for(events, "solve", lambda s: s["version"] == 1)
    assert item_of(session, "cat9.png")["answer"] == "eel"


def test_a_solve_that_fails_says_why_and_the_answers_stay(session, events, real_run):
    examples = range(session.n_photos, session.n_items)
    wrong = [n for n in examples if session.items([n])[0]["label"] != "cat"]
    session.answer("reject", wrong)
    failed = wait_for(events, "solve", lambda s: s["state"] == "failed")
    assert "at least two classes" in failed["error"]
    assert json.loads((real_run / "run.json").read_text())["review"]["n_entries"] == 0
    session.undo()
    wait_for_solve(events)
    assert not session.view(ViewQuery("corrected")).size


def test_finishing_writes_the_statement(session, events, real_run):
    session.answer("label", [number_of(session, "cat9.png")], label="cat")
    wait_for_solve(events)
    session.set_goal(0.8)
    for _ in range(30):
        number = session.next_audit()["id"]
        session.answer("audit", [number], label=session.items([number])[0]["predicted"])
    session.finish(["imagefolder"])
    statement = wait_for(events, "finished")
    facts = json.loads((real_run / "run.json").read_text())
    assert facts["review"]["statement"] == statement
    assert statement["goal"] == 0.8
    assert statement["low"] >= 0.8
    assert statement["sentence"] in (real_run / "report.html").read_text()
    assert (real_run / "imagefolder" / "cat").is_dir()
    assert session.state()["finished"] == statement


def test_finishing_promises_nothing_about_labels_that_changed_after_the_audit(session, events):
    number = session.next_audit()["id"]
    session.answer("audit", [number], label=session.items([number])[0]["predicted"])
    session.answer("label", [number_of(session, "cat9.png")], label="eel")
    session.finish([])
    statement = wait_for(events, "finished")
    assert (statement["low"], statement["part"]) == (None, None)
    assert "no accuracy is promised" in statement["sentence"]


def test_map_groups_and_similarity_arrive(session, events):
    first = wait_for(events, "map")
    last = first if first["projection"] == "tsne" else wait_for(events, "map")
    assert last == {"projection": "tsne"}
    name, content = session.map()
    xy = np.frombuffer(content, "<f4").reshape(-1, 2)
    readable = ~np.isnan(xy).any(1)
    assert name == "tsne"
    assert readable.sum() == session.n_photos - 1
    one, two = number_of(session, "cat8.png"), number_of(session, "cat8-copy.png")
    assert session.view(ViewQuery("all", sort="similar", pin=one)).tolist()[:2] in (
        [one, two], [two, one],
    )  # fmt: skip
    assert any({one, two} <= set(group["ids"]) for group in session.groups())
