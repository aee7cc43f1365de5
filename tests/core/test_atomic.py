"""Writing and locking; failed writes are tested with the feature files."""

import subprocess
import sys

import pytest

from infoshot import DataError
from infoshot.core.atomic import check_outputs, make_folder, sole_writer, temporary_name

HOLD = """
import sys
from pathlib import Path
from infoshot.core.atomic import sole_writer, temporary_name

folder = Path(sys.argv[1])
with sole_writer(folder):
    temporary_name(folder / "half.txt").write_text("half")
    temporary_name(folder / "sub" / "export").mkdir(parents=True)
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked the folder and writes to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_only_one_process_writes_to_a_folder(holder, tmp_path):
    with pytest.raises(DataError) as caught, sole_writer(tmp_path):
        pytest.fail("both have locked it")
    assert str(caught.value) == f"{tmp_path}: another process is writing there."
    assert len(list(tmp_path.rglob(".*.part"))) == 2  # what the other process writes is kept
    holder.stdin.close()
    assert holder.wait() == 0
    with sole_writer(tmp_path):
        pass


def test_unfinished_files_of_a_killed_process_are_removed(holder, tmp_path):
    (tmp_path / "finished.txt").write_text("kept")
    holder.kill()
    holder.wait()
    assert len(list(tmp_path.rglob(".*.part"))) == 2
    with sole_writer(tmp_path):
        assert not list(tmp_path.rglob(".*.part"))
    assert (tmp_path / "finished.txt").read_text() == "kept"


def test_one_process_cannot_lock_a_folder_twice(tmp_path):
    with sole_writer(tmp_path):
        for _ in range(2):  # a failed attempt does not end the first lock
            with pytest.raises(DataError, match="another process is writ"), sole_writer(tmp_path):
                pass
    with sole_writer(tmp_path):
        pass


def test_errors_end_the_lock(tmp_path):
    with pytest.raises(KeyboardInterrupt), sole_writer(tmp_path):
        raise KeyboardInterrupt
    with sole_writer(tmp_path):
        pass


def test_folders_that_cannot_be_written_are_reported(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(DataError, match=r"file: cannot be written to \("),
        sole_writer(tmp_path / "file"),
    ):
        pass
    with pytest.raises(DataError, match=r"file/x: this folder cannot be created \(Not a directory"):
        make_folder(tmp_path / "file" / "x")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_temporary_names_differ(tmp_path):
    names = {temporary_name(tmp_path / "a.txt") for _ in range(10)}
    assert len(names) == 10
    assert {name.parent for name in names} == {tmp_path}


def test_outputs_never_replace_inputs(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").touch()
    (tmp_path / "f").touch()
    inputs = [tmp_path / "in", tmp_path / "f"]
    check_outputs(inputs, [None, tmp_path / "out", tmp_path / "in" / "new.csv"])
    for outputs in (
        [tmp_path / "f"],
        [tmp_path / "in" / "a.png"],
        [tmp_path / "in" / ".." / "f"],
        [tmp_path / "x", tmp_path / "x"],
    ):
        with pytest.raises(DataError, match="would replace an input or another output"):
            check_outputs(inputs, outputs)
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\)"):
        check_outputs(inputs, [tmp_path / "gone" / "out"])
