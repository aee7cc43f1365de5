"""Answers of a person: none of the classes, blind audits, and the log of a review."""

import json
import shutil
from contextlib import closing

import numpy as np
import pytest

from infoshot import DataError, labelling
from infoshot.labelling import add_labels
from infoshot.labelling.answer_log import (
    Answer,
    AnswerLog,
    Change,
    Entry,
    apply_entries,
    read_entries,
)
from infoshot.labelling.run_folder import read_run
from infoshot.labelling.updates import solve_again
from tests.labelling.commands import rows


@pytest.fixture(scope="module")
def finished(made):
    return labelling.label(
        made / "examples", made / "photos", made / "to-answer", backbone=made / "weights",
        cache=made / "cache",
    ).folder  # fmt: skip


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def photo(made):
    return lambda name: str(made / "photos" / name)


def line_of(run, path):
    return next(row for row in rows(run / "labels.csv") if row["path"] == path)


def write_log(run, *changes):
    """Append one entry for each (path, answer)."""
    with closing(AnswerLog(run)) as log:
        for path, answer in changes:
            n = len(log.entries) + 1
            log.append(Entry(n, "now", "label", changes=[Change(path, None, answer)]))


def test_a_photo_of_no_class_gets_no_label_and_is_not_solved(run, photo, no_encoding):
    path = photo("cat7.png")
    result = add_labels(run, {path: "(none)"})
    line = line_of(run, path)
    assert (line["label"], line["status"], line["reason"]) == ("", "outlier", "given")
    assert result.classes == ("cat", "dog", "eel")
    number = [image.path for image in result.images].index(path)
    assert result.probabilities[number].isnan().all()
    assert path not in {image.path for image in labelling.suggest(run, n=60).images}
    # It stays so when the run is read again and solved again.
    add_labels(run, {photo("dog9.png"): "dog"})
    assert line_of(run, path)["label"] == ""


def test_an_example_of_no_class_is_dropped_and_can_come_back(run, made, no_encoding):
    path = str(made / "examples" / "cat" / "0.png")
    add_labels(run, {path: "(none)"})
    after = read_run(run)
    assert path not in {example.image.path for example in after.examples}
    assert [example.image.path for example in after.dropped] == [path]
    add_labels(run, {path: "cat"})
    assert not read_run(run).dropped
    assert len(read_run(run).examples) == 21


def test_taking_back_the_correction_of_an_example_restores_its_label(run, made, no_encoding):
    path = str(made / "examples" / "cat" / "0.png")
    before = rows(run / "labels.csv")
    write_log(run, (path, Answer("dog")))
    solve_again(run)
    assert next(e.label for e in read_run(run).examples if e.image.path == path) == "dog"
    write_log(run, (path, None))
    solve_again(run)
    assert next(e.label for e in read_run(run).examples if e.image.path == path) == "cat"
    assert rows(run / "labels.csv") == before


def test_no_class_may_be_called_none(tmp_path, made, label):
    examples = shutil.copytree(made / "examples", tmp_path / "examples")
    (examples / "cat").rename(examples / "(none)")
    with pytest.raises(DataError, match=r"'\(none\)' means 'none of the classes'"):
        label(tmp_path / "out", examples=examples)


def test_audit_answers_change_one_label_and_teach_the_solver_nothing(run, photo, no_encoding):
    before = {row["path"]: row for row in rows(run / "labels.csv")}
    chances = read_run(run).probabilities
    path = photo("cat7.png")
    truth = "eel" if before[path]["label"] != "eel" else "dog"
    write_log(run, (path, Answer(truth, audit=True)))
    decision, n_entries = solve_again(run)
    assert n_entries == 1
    after = {row["path"]: row for row in rows(run / "labels.csv")}
    changed = [path for path in before if after[path] != before[path]]
    assert changed == [path]
    assert (after[path]["label"], after[path]["runner_up"]) == (truth, before[path]["label"])
    np.testing.assert_array_equal(read_run(run).probabilities, chances)
    assert {e.image.path for e in decision.examples}.isdisjoint({path})
    assert path not in {image.path for image in labelling.suggest(run, n=60).images}
    # The answer is still known as one of an audit after the run was written.
    (row,) = rows(run / "corrections.csv")
    assert row == {"path": path, "label": truth, "source": "audit"}
    solve_again(run)
    np.testing.assert_array_equal(read_run(run).probabilities, chances)


def test_an_audit_answer_of_a_class_without_examples_is_no_label(run, photo, no_encoding):
    path = photo("cat7.png")
    write_log(run, (path, Answer("owl", audit=True)))
    solve_again(run)
    assert (line_of(run, path)["label"], line_of(run, path)["reason"]) == ("", "given")
    assert rows(run / "corrections.csv") == [{"path": path, "label": "owl", "source": "audit"}]
    add_labels(run, {photo("dog9.png"): "owl"})  # now there is one
    assert line_of(run, path)["label"] == "owl"


def test_every_photo_may_be_answered(run, made, no_encoding):
    truth = {row["path"]: row["path"].rpartition("/")[2][:3] for row in rows(run / "labels.csv")}
    result = add_labels(run, truth)
    assert result.labels == truth
    assert {row["reason"] for row in rows(run / "labels.csv")} == {"given"}
    assert labelling.predict(run, made / "photos")  # the classifier is there as ever


def test_every_photo_may_be_of_no_class(run, no_encoding):
    paths = [row["path"] for row in rows(run / "labels.csv")]
    result = add_labels(run, dict.fromkeys(paths, "(none)"))
    assert set(result.labels.values()) == {""}


def test_one_class_cannot_be_solved(run, made, no_encoding):
    examples = [e.image.path for e in read_run(run).examples if e.label != "cat"]
    before = (run / "run.json").read_bytes()
    with pytest.raises(DataError, match="at least two classes are needed"):
        add_labels(run, dict.fromkeys(examples, "(none)"))
    assert (run / "run.json").read_bytes() == before


def test_commands_apply_what_a_killed_review_left_in_its_log(run, photo, label, no_encoding):
    one, two = photo("cat7.png"), photo("dog9.png")
    write_log(run, (one, Answer("eel")))
    add_labels(run, {two: "cat"})  # label --add
    assert line_of(run, one)["label"] == "eel"
    write_log(run, (two, Answer("eel")), (one, None))
    label(run)  # the same run again
    assert line_of(run, two)["label"] == "eel"
    assert line_of(run, one)["reason"] != "given"
    assert json.loads((run / "run.json").read_text())["review"] == {"n_entries": 3}


def test_the_log_of_other_images_is_set_aside(run, photo, label, made, tmp_path, no_encoding):
    write_log(run, (photo("cat7.png"), Answer("eel")))
    some = tmp_path / "some.txt"
    some.write_text("\n".join(photo(f"cat{n}.png") for n in range(7, 20)))
    label(run, photos=some, force=True)
    assert not (run / "review.jsonl").exists()
    assert len(read_entries_of(run / "review-1.jsonl")) == 1
    assert not (run / "corrections.csv").exists()


def read_entries_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_without_its_end_is_no_entry(run):
    write_log(run, ("a", Answer("cat")), ("b", Answer("dog")))
    path = run / "review.jsonl"
    whole = path.read_bytes()
    for n in range(len(whole.splitlines()[0]) + 1, len(whole)):
        path.write_bytes(whole[:n])
        assert [entry.n for entry in read_entries(run)] == [1]
    with closing(AnswerLog(run)) as log:
        log.append(Entry(2, "later", "label", changes=[Change("c", None, Answer("eel"))]))
    assert apply_entries({}, read_entries(run)) == {"a": Answer("cat"), "c": Answer("eel")}


DAMAGED = {
    "no JSON": b"{]\n",
    "not an object": b"[]\n",
    "unknown": b'{"n":1,"time":"","action":"","client":"","changes":[],"more":1}\n',
    "number": b'{"n":"1","time":"","action":"","client":"","changes":[]}\n',
    "change": b'{"n":1,"time":"","action":"","client":"","changes":[["a"]]}\n',
    "answer": b'{"n":1,"time":"","action":"","client":"","changes":[["a",null,3]]}\n',
    "control": b'{"n":1,"time":"","action":"","client":"","changes":[["a",null,"\\u001b"]]}\n',
    "facts": b'{"n":1,"time":"","action":"undo","client":"","changes":[]}\n',
    "order": b'{"n":1,"time":"","action":"","client":"","changes":[]}\n' * 2,
    "nested": b'{"n":' + b"[" * 100_000 + b"\n",
    "bytes": b"\xff\xfe\n",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_log_is_refused_with_its_line(run, content):
    (run / "review.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"review\.jsonl: line \d is damaged"):
        solve_again(run)


def test_the_log_is_not_opened_through_a_link(run, tmp_path):
    target = tmp_path / "precious"
    target.write_text("kept")
    (run / "review.jsonl").symlink_to(target)
    with pytest.raises(DataError, match="review"):
        AnswerLog(run)
    assert target.read_text() == "kept"


def test_a_full_disk_loses_no_earlier_entry(run, monkeypatch):
    write_log(run, ("a", Answer("cat")))
    with closing(AnswerLog(run)) as log:

        def fail(file):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", fail)
        entry = Entry(2, "now", "label", changes=[Change("b", None, Answer("dog"))])
        with pytest.raises(DataError, match="No space left"):
            log.append(entry)
        monkeypatch.undo()
        log.append(entry)
    assert [entry.n for entry in read_entries(run)] == [1, 2]


def test_outputs_never_replace_the_log(run, photo):
    write_log(run, (photo("cat7.png"), Answer("eel")))
    with pytest.raises(DataError, match="belongs to the run"):
        labelling.suggest(run, out=run / "review.jsonl")
