"""Writing and locking; failed writes are tested with the feature files."""

import os
import subprocess
import sys

import pytest

from infoshot import DataError
from infoshot.core.atomic import (
    make_folder,
    open_atomically,
    output_folder,
    sole_writer,
    temporary_name,
    write_atomically,
)

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


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


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
    assert len(list(tmp_path.rglob(".*part"))) == 2  # what the other process writes is kept
    holder.stdin.close()
    assert holder.wait() == 0
    with sole_writer(tmp_path):
        pass


def test_unfinished_files_of_a_killed_process_are_removed(holder, tmp_path):
    (tmp_path / "finished.txt").write_text("kept")
    holder.kill()
    holder.wait()
    assert len(list(tmp_path.rglob(".*part"))) == 2
    with sole_writer(tmp_path):
        assert not list(tmp_path.rglob(".*part"))
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


@pytest.fixture
def leftover(tmp_path):
    """What a killed process has left: an unfinished file, and its record of having made it."""
    (tmp_path / ".infoshot-writers").write_text(f"{'1' * 16}\n")
    path = tmp_path / f".half.txt.{'1' * 16}{'2' * 16}.infoshot-part"
    path.write_text("half")
    return path


def test_files_of_the_user_are_never_leftovers(leftover, tmp_path):
    (tmp_path / ".notes.part").write_text("mine")
    (tmp_path / "sub" / ".folder.part").mkdir(parents=True)
    (tmp_path / "sub" / ".folder.part" / "a.txt").write_text("mine")
    # The form of our names, but a token that no writer of this folder has recorded.
    foreign = tmp_path / f".a.txt.{'0' * 32}.infoshot-part"
    foreign.write_text("of a process that writes to another folder")
    with sole_writer(tmp_path):
        assert (tmp_path / ".notes.part").read_text() == "mine"
        assert (tmp_path / "sub" / ".folder.part" / "a.txt").read_text() == "mine"
        assert foreign.exists()
        assert not leftover.exists()


def test_leftovers_are_not_searched_behind_links(leftover, tmp_path, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    leftover.rename(elsewhere / leftover.name)
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / leftover.name).symlink_to(elsewhere)  # a link of such a name goes, not its target
    with sole_writer(tmp_path):
        assert listed(tmp_path) == [".infoshot-writers", ".lock", "link"]
    assert (elsewhere / leftover.name).read_text() == "half"


def test_the_record_of_writers_is_removed_at_the_end(tmp_path):
    with sole_writer(tmp_path):
        write_atomically(tmp_path / "a.txt", "a")
    assert listed(tmp_path) == [".lock", "a.txt"]


@pytest.mark.parametrize("name", [".lock", ".infoshot-writers"])
@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symbolic link", "hard link"])
def test_locking_does_not_write_through_links(name, make, tmp_path, tmp_path_factory):
    target = tmp_path_factory.mktemp("elsewhere") / "precious.txt"
    target.write_text("mine")
    make(target, tmp_path / name)
    if (name, make) == (".lock", os.link):  # it looks like any file, so it is locked and kept
        with sole_writer(tmp_path):
            pass
    else:
        with pytest.raises(DataError) as caught, sole_writer(tmp_path):
            pytest.fail("the folder was locked")
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
        assert str(caught.value).count(". ") == 0
    assert target.read_text() == "mine"
    assert (tmp_path / name).exists()


def test_a_link_as_lock_file_is_reported_in_one_sentence(tmp_path):
    (tmp_path / ".lock").symlink_to("elsewhere.txt")
    with pytest.raises(DataError) as caught, sole_writer(tmp_path):
        pass
    assert str(caught.value) == f"{tmp_path}/.lock: a symbolic link, not a lock file; remove it."
    assert not (tmp_path / "elsewhere.txt").exists()


def test_temporary_names_differ(tmp_path):
    names = {temporary_name(tmp_path / "a.txt") for _ in range(10)}
    assert len(names) == 10
    assert {name.parent for name in names} == {tmp_path}


@pytest.mark.parametrize("name", ["x" * 255, "\U0001f98a" * 63, "\udcff" * 255])
def test_the_longest_names_can_be_written(name, tmp_path):
    write_atomically(tmp_path / name, "content")
    assert listed(tmp_path) == [name]


def test_own_files_replace_links_but_nothing_else(tmp_path):
    (tmp_path / "other.txt").write_text("mine")
    (tmp_path / "a.txt").symlink_to("other.txt")
    write_atomically(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert (tmp_path / "other.txt").read_text() == "mine"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: cannot be written \(a device, a pipe or a socket"):
        write_atomically(tmp_path / "pipe", "new")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("failure", [DataError("refused"), KeyboardInterrupt()])
def test_folder_of_a_refused_command_is_removed(failure, tmp_path):
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "mine" / "a" / "b", tmp_path / "mine"):
        with pytest.raises(type(failure)), output_folder(folder):
            raise failure
        assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_folder_with_a_result_is_kept(tmp_path):
    def write_and_fail():
        (tmp_path / "a" / "b" / "result").write_text("")
        raise DataError("stopped")

    with pytest.raises(DataError), output_folder(tmp_path / "a" / "b"):
        write_and_fail()
    assert listed(tmp_path / "a" / "b") == ["result"]
    with output_folder(tmp_path / "c"):
        pass
    assert listed(tmp_path) == ["a", "c"]


def test_no_parent_is_left_of_a_folder_that_cannot_be_made(tmp_path):
    folder = tmp_path / "a" / ("x" * 300)
    with pytest.raises(DataError, match="this folder cannot be created"), output_folder(folder):
        pass
    assert listed(tmp_path) == []


def test_files_that_are_written_in_parts_appear_at_the_end(tmp_path):
    path = tmp_path / "a.bin"
    with open_atomically(path) as file:
        file.write(b"one ")
        assert not path.exists()
        file.write(b"two")
    assert path.read_bytes() == b"one two"

    def fail():
        with open_atomically(path) as file:
            file.write(b"three")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"one two"
    assert listed(tmp_path) == ["a.bin"]
    with pytest.raises(DataError, match="cannot be written"), open_atomically(tmp_path / "x" / "y"):
        pass
