"""The state of a review on a real run: answers, views, conflicts, classes, audits."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from infoshot import DataError, InvalidArgumentError
from infoshot.core.label_names import NONE
from infoshot.labelling.corrections import read_corrections
from infoshot.reviewing.answer_rules import Conflict
from infoshot.reviewing.session import Session
from infoshot.reviewing.views import ViewQuery
from tests.labelling.commands import rows


@pytest.fixture
def session(real_run):
    session = Session(real_run, compute=False)
    yield session
    session.close()


def number_of(session, name):
    names = [item["name"] for item in session.items(range(session.n_photos))]
    return names.index(name)


def item_of(session, name):
    return session.items([number_of(session, name)])[0]


def truth_of(item):
    return item["name"][:3]


def view(session, name, **more):
    return session.view(ViewQuery(name, **more)).tolist()


def test_items_say_what_labels_csv_says(session, real_run):
    lines = rows(real_run / "labels.csv")
    items = session.items(range(session.n_photos))
    assert [item["path"] for item in items] == [line["path"] for line in lines]
    for item, line in zip(items, lines, strict=True):
        label, confidence, margin, status = (
            line[name] for name in ("label", "confidence", "margin", "status")
        )
        assert (item["label"], item["status"], item["answer"]) == (label, status, None)
        if status != "unreadable":
            assert item["confidence"] == pytest.approx(float(confidence), abs=1e-4)
            assert item["margin"] == pytest.approx(float(margin), abs=1e-4)
            assert item["scores"][0][0] == item["predicted"] == label
    example = session.items([session.n_photos])[0]
    assert (example["kind"], example["label"]) == ("example", "cat")


def test_an_answer_is_on_the_disk_and_survives_without_a_solve(session, real_run):
    number = number_of(session, "cat7.png")
    assert session.answer("label", [number], label="eel", client="a") == {
        "entry": 1, "n_changed": 1,
    }  # fmt: skip
    stored = [json.loads(line) for line in (real_run / "review.jsonl").read_text().splitlines()]
    assert stored[0]["changes"] == [[session.items([number])[0]["path"], None, "eel"]]
    item = session.items([number])[0]
    assert (item["label"], item["answer"], item["entry"]) == ("eel", "eel", 1)
    session.close()
    again = Session(real_run, compute=False)
    assert again.items([number])[0]["answer"] == "eel"
    assert again.state()["entry"] == 1
    again.close()
    session.__init__(real_run, compute=False)  # for the fixture


def test_actions(session):
    number = number_of(session, "dog9.png")
    predicted = session.items([number])[0]["predicted"]
    session.answer("accept", [number])
    assert session.items([number])[0]["answer"] == predicted
    shown = next(name for name in ("cat", "dog", "eel") if name != predicted)
    session.answer("accept", [number], label=shown)  # a solve came in between
    assert session.items([number])[0]["answer"] == shown
    session.answer("reject", [number])
    assert (session.items([number])[0]["answer"], session.items([number])[0]["label"]) == (NONE, "")
    session.answer("clear", [number])
    assert session.items([number])[0]["answer"] is None
    session.answer("skip", [number])
    assert session.items([number])[0]["skipped"]
    assert number not in view(session, "suggested")
    session.answer("label", [number], label="cat")
    assert not session.items([number])[0]["skipped"]
    session.undo()
    assert session.items([number])[0]["skipped"]


def test_an_answer_that_changes_nothing_is_no_entry(session):
    session.answer("label", [1], label="cat")
    assert session.answer("label", [1], label="cat") == {"entry": 1, "n_changed": 0}
    session.answer("skip", [2])
    assert session.answer("skip", [2]) == {"entry": 2, "n_changed": 0}
    session.undo()
    session.undo()
    assert session.items([1])[0]["answer"] is None


def test_photos_with_the_same_content_get_the_same_answer(session):
    one, two = number_of(session, "cat8.png"), number_of(session, "cat8-copy.png")
    assert session.answer("label", [one], label="dog")["n_changed"] == 2
    assert session.items([two])[0]["answer"] == "dog"
    session.undo()
    assert session.items([two])[0]["answer"] is None


def test_what_cannot_be_answered_is_refused(session):
    broken = number_of(session, "broken.png")
    for action in ("label", "accept", "reject"):
        with pytest.raises(InvalidArgumentError, match="none of these photos can be answered"):
            session.answer(action, [broken], label="cat")
    with pytest.raises(InvalidArgumentError, match="Unknown class 'horse'"):
        session.answer("label", [0], label="horse")
    with pytest.raises(InvalidArgumentError, match="Unknown class"):
        session.answer("label", [0], label=NONE)
    with pytest.raises(InvalidArgumentError, match="action must be one of label"):
        session.answer("explode", [0])
    for wrong in (-1, session.n_items):
        with pytest.raises(InvalidArgumentError, match="there is no item"):
            session.answer("accept", [wrong])
    assert session.state()["entry"] == 0


def test_an_answer_for_other_photos_is_refused(session):
    items = session.state()["items"]
    session.answer("label", [1], label="cat", items=items)
    with pytest.raises(InvalidArgumentError, match="other photos now; reload the page"):
        session.answer("label", [1], label="dog", items="0" * 16)
    assert session.items([1])[0]["answer"] == "cat"


def test_a_conflicting_answer_of_another_page_is_shown(session):
    session.answer("label", [3], label="cat", client="a", seen=0)
    with pytest.raises(Conflict) as found:
        session.answer("label", [2, 3], label="dog", client="b", seen=0)
    assert found.value.items == [{"id": 3, "answer": "cat"}]
    assert session.items([2])[0]["answer"] is None  # nothing was stored
    session.answer("label", [3], label="cat", client="b", seen=0)  # the same answer is none
    session.answer("label", [3], label="dog", client="b", seen=2)  # seen and meant
    session.answer("label", [3], label="eel", client="a", seen=0, replace=True)
    assert session.items([3])[0]["answer"] == "eel"


def test_views(session):
    margins = [item["margin"] for item in session.items(view(session, "doubtful"))]
    assert margins == sorted(margins)
    broken = number_of(session, "broken.png")
    assert view(session, "unreadable") == [broken]
    assert broken not in view(session, "doubtful")
    assert view(session, "examples") == list(range(session.n_photos, session.n_items))
    session.answer("label", [5, 6], label="cat")
    session.answer("label", [1], label="dog")
    assert view(session, "corrected") == [1, 5, 6]
    cats = session.items(view(session, "class", label="cat"))
    assert {item["label"] for item in cats} == {"cat"}
    waiting = [item["confidence"] for item in cats if item["answer"] is None]
    assert waiting == sorted(waiting)
    assert [item["answer"] is None for item in cats] == sorted(
        (item["answer"] is None for item in cats), reverse=True
    )
    with pytest.raises(InvalidArgumentError, match="class must be given"):
        view(session, "class")
    counts = session.state()["views"]
    for name, n in counts.items():
        assert len(view(session, name)) == n


def test_sorting_and_filters_against_plain_python(session):
    items = session.items(range(session.n_photos))
    session.answer("reject", [4])
    named = view(session, "all", sort="name", order="desc")
    assert named == sorted(range(len(items)), key=lambda n: items[n]["path"], reverse=True)
    found = view(session, "all", text="CAT1", status="unanswered", low=0.3, high=0.9)
    assert found == [
        item["id"] for item in items
        if "cat1" in item["path"] and item["confidence"] is not None and item["id"] != 4
        and 0.3 <= item["confidence"] <= 0.9
    ]  # fmt: skip
    assert view(session, "all", status="rejected") == [4]
    assert view(session, "all", status="unreadable") == view(session, "unreadable")
    by_score = view(session, "all", sort="outlier")
    scores = [item["outlier_score"] for item in session.items(by_score)]
    known = [score for score in scores if score is not None]
    assert known == sorted(known, reverse=True)
    assert scores[: len(known)] == known  # unreadable ones last
    with pytest.raises(InvalidArgumentError, match="cannot be compared yet"):
        view(session, "all", sort="similar", pin=0)
    with pytest.raises(InvalidArgumentError, match="view must be one of"):
        ViewQuery("nothing")


def test_points_agree_with_items(session):
    session.answer("reject", [7])
    points = np.frombuffer(session.points(), dtype="<u2,u1,u1")
    classes = [entry["name"] for entry in session.state()["classes"]]
    for item, (label, confidence, flags) in zip(
        session.items(range(session.n_photos)), points.tolist(), strict=True
    ):
        assert (classes[label] if label < 65535 else "") == item["label"]
        assert abs(confidence / 255 - (item["confidence"] or 0)) < 0.003
        assert bool(flags & 1) == (item["answer"] is not None)
        assert bool(flags & 4) == (item["status"] == "unreadable")
        assert bool(flags & 64) == (item["answer"] == NONE)


def test_classes_can_be_added_renamed_and_merged(session):
    names = lambda: [entry["name"] for entry in session.state()["classes"]]  # noqa: E731
    session.change_class("add", " owl ")
    assert names() == ["cat", "dog", "eel", "owl"]
    session.answer("label", [1], label="owl")
    session.change_class("rename", "owl", "barn owl")
    assert "owl" not in names()
    assert session.items([1])[0]["answer"] == "barn owl"
    before = {
        item["id"] for item in session.items(range(session.n_items)) if item["label"] == "eel"
    }
    session.change_class("merge", "eel", "dog")
    after = session.items(sorted(before))
    assert {item["label"] for item in after} == {"dog"}
    session.undo()
    assert {item["label"] for item in session.items(sorted(before))} == {"eel"}
    for wrong, message in (
        ({"action": "add", "name": "cat"}, "exists already"),
        ({"action": "add", "name": "Cat"}, "differ only in case"),
        ({"action": "add", "name": NONE}, "needs a name"),
        ({"action": "add", "name": " "}, "needs a name"),
        ({"action": "add", "name": "a\x1bb"}, "control characters"),
        ({"action": "merge", "name": "cat", "to": "cat"}, "another class"),
        ({"action": "merge", "name": "cat", "to": "horse"}, "Unknown class"),
        ({"action": "rename", "name": "horse", "to": "pony"}, "Unknown class"),
        ({"action": "drop", "name": "cat"}, "action must be"),
    ):
        with pytest.raises((InvalidArgumentError, DataError), match=message):
            session.change_class(**wrong)


def test_the_audit_asks_at_random_and_shows_nothing(session):
    asked = []
    while (found := session.next_audit())["id"] is not None:
        assert set(found) == {"id", "n_audited", "next"}
        item = session.items([found["id"]])[0]
        session.answer("audit", [found["id"]], label=truth_of(item))
        asked.append(found["id"])
    readable = [i["id"] for i in session.items(range(session.n_photos)) if i["scores"]]
    assert sorted(asked) != asked
    copy = {number_of(session, "cat8.png"), number_of(session, "cat8-copy.png")}
    assert set(readable) - set(asked) <= copy  # one answer serves both
    found = session.enough()
    assert found["promise"]["met"]
    assert found["sentences"] == [f"A person answered all {len(readable)} photos."]


def test_a_class_without_a_photo_cannot_be_an_audit_answer(session):
    session.change_class("add", "owl")
    number = session.next_audit()["id"]
    with pytest.raises(InvalidArgumentError, match="has no photo yet"):
        session.answer("audit", [number], label="owl")
    session.answer("label", [session.next_audit()["next"][0]], label="owl")
    session.answer("audit", [number], label="owl")


def test_photos_that_were_answered_are_not_asked(session):
    first = session.next_audit()
    session.answer("accept", [first["id"], first["next"][1]])
    assert session.next_audit()["id"] == first["next"][0]
    assert first["next"][1] not in session.next_audit()["next"]


def test_an_audited_photo_counts_by_the_label_of_the_solver(session):
    number = session.next_audit()["id"]
    predicted = session.items([number])[0]["predicted"]
    wrong = next(name for name in ("cat", "dog", "eel") if name != predicted)
    session.answer("audit", [number], label=wrong)
    assert session.enough()["audit"] == {"n": 1, "n_correct": 0, "round": 1}
    session.answer("label", [number], label=wrong)  # corrected later: still an error of the audit
    assert session.enough()["audit"]["n_correct"] == 0
    session.undo(to=0)
    assert session.enough()["audit"]["n"] == 0


def test_an_answer_during_the_change_of_another_command_is_kept(session, monkeypatch):
    person = threading.Thread(target=lambda: session.answer("label", [1], label="eel"))

    def read_slowly(*arguments):
        found = read_corrections(*arguments)
        person.start()
        person.join(0.3)
        return found

    monkeypatch.setattr("infoshot.reviewing.session.read_corrections", read_slowly)
    session._take_run(None)
    person.join()
    assert session.items([1])[0]["answer"] == "eel"


def test_events_reach_every_page_in_order(session):
    session.answer("label", [1], label="cat", client="a")
    late, early = session.subscribe(0), session.subscribe(1)
    session.answer("label", [2], label="dog", client="b")
    events = [event for event in iter(lambda: late.get(0.01), None) if event.name == "entry"]
    assert [(event.entry, event.data["ids"], event.data["client"]) for event in events] == [
        (1, [1], "a"), (2, [2], "b"),
    ]  # fmt: skip
    assert next(event.entry for event in iter(lambda: early.get(0.01), None)) == 2
    late.close()
    session.answer("label", [3], label="dog")
    assert late.get(0.01) is None


def test_image_files_are_those_of_the_run_only(session):
    path, digest = session.image_file(0)
    assert Path(path).exists()
    assert len(digest) == 64
    with pytest.raises(InvalidArgumentError, match="there is no item"):
        session.image_file(10**9)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not contain a finished labelling run"):
        Session(tmp_path)
