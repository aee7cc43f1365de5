"""The files of a run change together: after a kill, and for a reader beside a writer."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from infoshot import DataError, labelling
from infoshot.labelling import add_labels, audit, draw_audit, predict, suggest
from infoshot.labelling.classifier import load_classifier
from infoshot.labelling.run_files import RUN_FILES
from infoshot.labelling.run_folder import read_run
from tests.labelling.commands import rows

OF_WRITERS = {".lock", ".infoshot-writers"}  # files that are no part of a run
CHANGING = ("mkdir", "replace", "rename", "rmdir", "unlink")


class Killed(BaseException):
    """The process ends here; nothing that comes later happens."""


@pytest.fixture(scope="module")
def first(made):
    """A finished run."""
    return labelling.label(
        made / "examples", made / "photos", made / "first", backbone=made / "weights",
        cache=made / "cache", method="prototype",
    ).folder  # fmt: skip


@pytest.fixture(scope="module")
def corrections(made):
    return {str(made / "photos" / "cat7.png"): "newt", str(made / "photos" / "dog9.png"): "dog"}


@pytest.fixture(scope="module")
def second(first, corrections, made):
    """The same run with corrections."""
    folder = shutil.copytree(first, made / "second")
    add_labels(folder, corrections)
    return folder


@pytest.fixture
def run(first, tmp_path):
    return shutil.copytree(first, tmp_path / "run")


def contents(folder):
    """All files of a folder; run.json without what depends on the moment."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in OF_WRITERS
    }
    facts = json.loads(found["run.json"])
    return {**found, "run.json": {**facts, "environment": None}}


@contextmanager
def kill_after(n_steps, functions=CHANGING):
    """Let ``n_steps`` changes of files happen, and none of those that come later."""
    left, kept = n_steps, {name: getattr(os, name) for name in functions}

    def wrap(function):
        def step(*arguments, **more):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return function(*arguments, **more)

        return step

    try:
        for name, function in kept.items():
            setattr(os, name, wrap(function))
        yield
    finally:
        for name, function in kept.items():
            setattr(os, name, function)


def state(folder):
    """Return what every reader says about a run; all must say the same."""
    found = read_run(folder)
    given = {label.path: label.label for label in found.labels if label.reason == "given"}
    classes = tuple(found.facts["classes"])
    assert found.facts["counts"]["examples"] == 21 + len(given)
    assert {example.image.path for example in found.examples if example.given} == set(given)
    assert load_classifier(folder).classes == classes
    assert load_classifier(folder / "classifier.safetensors").classes == classes
    assert {label.runner_up for label in found.labels} <= {*classes, ""}
    return given


def test_a_killed_correction_leaves_the_old_or_the_new_state(
    run, second, corrections, tmp_path, made, no_encoding
):
    seen = []
    for n_steps in range(100):
        folder = shutil.copytree(run, tmp_path / str(n_steps))
        try:
            with kill_after(n_steps, ("replace", "rename")):
                add_labels(folder, corrections)
        except Killed:
            seen.append(state(folder))
            sample = draw_audit(folder, n=100, out=tmp_path / f"{n_steps}.csv")
            assert len(sample.images) == 60 - len(seen[-1])
            add_labels(folder, corrections)
            assert contents(folder) == contents(second)
            continue
        break
    assert seen[0] == {}
    assert seen[-1] == corrections
    assert seen == sorted(seen, key=len)  # never back
    assert {len(given) for given in seen} == {0, 2}


def test_commands_work_on_a_state_whose_files_are_not_all_moved(
    run, second, corrections, made, tmp_path, no_encoding
):
    for n_steps in range(100):
        folder = shutil.copytree(run, tmp_path / str(n_steps))
        with pytest.raises(Killed), kill_after(n_steps, ("replace", "rename")):
            add_labels(folder, corrections)
        if (folder / "corrections.csv").exists():
            break
    assert "newt" not in json.loads((folder / "run.json").read_text())["classes"]
    before = contents(folder)
    assert state(folder) == corrections
    labels = {image.path: image.label for image in predict(folder, made / "photos")}
    assert labels == {image.path: image.label for image in predict(second, made / "photos")}
    sheet = suggest(folder, n=60, out=tmp_path / "s.csv").sheet
    assert not {row["path"] for row in rows(sheet)} & set(corrections)
    (tmp_path / "a.csv").write_text(f"path,truth\n{made / 'photos' / 'cat8.png'},cat\n")
    assert audit(folder, tmp_path / "a.csv").lines[0].n_checked == 1
    assert contents(folder) == before  # readers change nothing
    add_labels(folder, {str(made / "photos" / "eel8.png"): "eel"})
    assert len(state(folder)) == 3
    assert sorted({path.name for path in folder.iterdir()} - OF_WRITERS) == [
        "classifier.safetensors", "corrections.csv", "labels.csv", "labels.parquet", "report.html",
        "run.json",
    ]  # fmt: skip


KILLS = """
import os, shutil, signal, sys
from pathlib import Path
from infoshot.labelling.run_files import RUN_FILES

def kill_after(n_steps):
    left = n_steps
    def wrap(function):
        def step(*arguments, **more):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **more)
        return step
    os.fsync = lambda descriptor: None  # slow, and nothing is lost without power loss
    for name in sys.argv[4:]:
        setattr(os, name, wrap(getattr(os, name)))

def kill_at_every_step(old, new, work):
    files = {name: (new / name).read_bytes() for name in RUN_FILES.names if (new / name).exists()}
    for n_steps in range(1000):
        folder = shutil.copytree(old, work / str(n_steps))
        child = os.fork()
        if not child:
            kill_after(n_steps)
            with RUN_FILES.open_writer(folder):
                RUN_FILES.write(folder, files)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if not status:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL, status

first, second, work = map(Path, sys.argv[1:4])
kill_at_every_step(first, second, work / "forwards")
kill_at_every_step(second, first, work / "backwards")
"""


def test_processes_killed_at_every_step_leave_one_state(first, second, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, first, second, tmp_path, *CHANGING],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for old, new, direction in ((first, second, "forwards"), (second, first, "backwards")):
        folders = sorted((tmp_path / direction).iterdir(), key=lambda path: int(path.name))
        assert contents(folders[-1]) == contents(new)  # not killed
        assert len(folders) > 15
        both = [state(old), state(new)]
        seen = [both.index(state(folder)) for folder in folders]
        assert seen == sorted(seen)
        assert set(seen) == {0, 1}
        for folder, number in zip(folders, seen, strict=True):
            with RUN_FILES.open_writer(
                folder
            ):  # the next process that writes moves or removes the rest
                assert contents(folder) == contents((old, new)[number])


def test_a_reader_beside_a_writer_sees_whole_states(run, first, second, monkeypatch):
    states = [
        {name: (folder / name).read_bytes() for name in RUN_FILES.names if (folder / name).exists()}
        for folder in (first, second)
    ]
    expected, problems = [state(first), state(second)], []

    def write():
        try:
            for number in range(60):
                with RUN_FILES.open_writer(run):
                    RUN_FILES.write(run, states[(number + 1) % 2])
        except BaseException as error:
            problems.append(error)

    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # so that there are many states
    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while writer.is_alive():
        found = read_run(run)
        given = {label.path: label.label for label in found.labels if label.reason == "given"}
        assert given in expected
        assert len(found.facts["classes"]) == 3 + ("newt" in given.values())
        load_classifier(run)
        seen.append(expected.index(given))
    writer.join()
    assert not problems
    assert set(seen) == {0, 1}


def test_a_correction_that_comes_before_the_lock_is_kept(label, run, made, monkeypatch):
    photo = str(made / "photos" / "cat7.png")

    def make_folder(_):
        """Another process adds a label after the first check, before this one has the lock."""
        add_labels(run, {photo: "eel"})

    monkeypatch.setattr("infoshot.labelling.api.make_folder", make_folder)
    result = label(run, method="prototype")
    assert result.labels[photo] == "eel"
    assert rows(run / "corrections.csv") == [{"path": photo, "label": "eel"}]
    assert state(run) == {photo: "eel"}


def test_files_of_another_state_are_refused(run, second):
    facts = json.loads((run / "run.json").read_text())
    for name, digest in facts["files"].items():
        assert hashlib.sha256((run / name).read_bytes()).hexdigest() == digest
    shutil.copy(second / "labels.parquet", run)
    with pytest.raises(
        DataError, match=r"labels\.parquet: damaged, or changed since it was written; lab"
    ):
        draw_audit(run)
    (run / "labels.parquet").unlink()
    with pytest.raises(DataError, match=r"labels\.parquet: missing; label the images again"):
        draw_audit(run)


def test_runs_without_digests_are_readable(run, made):
    path = run / "run.json"
    facts = json.loads(path.read_text())
    del facts["files"], facts["csv_safe"]
    path.write_text(json.dumps(facts))
    assert state(run) == {}
    add_labels(run, {str(made / "photos" / "cat7.png"): "eel"})
    assert len(state(run)) == 1
    assert "files" in json.loads(path.read_text())


def test_corrections_edited_by_hand_count(label, run, made):
    photos = [str(made / "photos" / f"cat{number}.png") for number in (7, 8)]
    add_labels(run, dict.fromkeys(photos, "eel"))
    (run / "corrections.csv").write_text(f"path,label\n{photos[0]},eel \n")
    assert label(run, method="prototype").labels[photos[0]] == "eel"
    assert state(run) == {photos[0]: "eel"}
    (run / "corrections.csv").unlink()
    label(run, method="prototype")
    assert state(run) == {}
    assert not (run / "corrections.csv").exists()


def test_other_files_under_the_name_of_the_commit_are_kept(run, tmp_path, made):
    commit, correction = run / ".infoshot-commit", {str(made / "photos" / "cat7.png"): "eel"}
    commit.mkdir()
    (commit / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="contains other files than those of a labelling run"):
        add_labels(run, correction)
    assert (commit / "thesis.tex").exists()
    shutil.move(commit, tmp_path / "elsewhere")
    commit.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="not a folder of this program"):
        add_labels(run, correction)
    assert (tmp_path / "elsewhere" / "thesis.tex").exists()
    commit.unlink()
    before = contents(run)
    (run / "report.html").unlink()
    (run / "report.html").mkdir()
    with pytest.raises(DataError, match=r"report\.html: not a regular file"):
        add_labels(run, correction)
    assert (run / "labels.csv").read_bytes() == before["labels.csv"]


def test_a_full_disk_keeps_the_old_state(run, made, monkeypatch):
    before = contents(run)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.rename", full)
    with pytest.raises(DataError, match=r"cannot be written to \(No space left on device\)"):
        add_labels(run, {str(made / "photos" / "cat7.png"): "eel"})
    monkeypatch.undo()
    assert contents(run) == before
