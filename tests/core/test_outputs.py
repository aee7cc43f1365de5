"""Outputs that are files, links, pipes and devices."""

import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from infoshot import DataError
from infoshot.core.outputs import check_outputs, is_stream, write_output

LARGE = b"0123456789abcdef" * 20_000  # more than a pipe holds


class Reader(threading.Thread):
    """Reads everything from a pipe."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self.pipe, self.content = pipe, None
        self.start()

    def run(self):
        self.content = self.pipe.read_bytes()


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


def test_outputs_never_replace_inputs(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").touch()
    (tmp_path / "f").touch()
    (tmp_path / "link").symlink_to("f")
    inputs = [tmp_path / "in", tmp_path / "f"]
    check_outputs(inputs, [None, tmp_path / "out", tmp_path / "in" / "new.csv"])
    for outputs in (
        [tmp_path / "f"],
        [tmp_path / "link"],
        [tmp_path / "in" / "a.png"],
        [tmp_path / "in" / ".." / "f"],
        [tmp_path / "x", tmp_path / "x"],
    ):
        with pytest.raises(DataError, match="would replace an input or another output"):
            check_outputs(inputs, outputs)
    with pytest.raises(DataError, match=r"cannot be written \(No such file or directory\)"):
        check_outputs(inputs, [tmp_path / "gone" / "out"])


def test_links_stay_and_their_targets_are_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "a.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to("far/a.json")
    (tmp_path / "chain.json").symlink_to(link)
    for name in ("link.json", "chain.json"):
        check_outputs([], [tmp_path / name])
        write_output(tmp_path / name, f"by {name}")
        assert (tmp_path / name).is_symlink()
        assert not target.is_symlink()
        assert target.read_text() == f"by {name}"
    (tmp_path / "new.json").symlink_to("far/b.json")  # its target does not exist yet
    write_output(tmp_path / "new.json", "new")
    assert (tmp_path / "far" / "b.json").read_text() == "new"
    assert listed(tmp_path / "far") == ["a.json", "b.json"]


def test_pipes_are_written_into(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for _ in range(2):
        reader = Reader(pipe)
        for attempt in range(1000):  # until the reader has opened the pipe
            try:
                check_outputs([], [pipe])
                break
            except DataError:
                assert attempt < 999
                reader.join(0.01)
        write_output(pipe, LARGE)
        reader.join(30)
        assert reader.content == LARGE
    assert pipe.is_fifo()
    assert listed(tmp_path) == ["pipe"]


def test_a_pipe_without_reader_is_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for function in (lambda: check_outputs([], [pipe]), lambda: write_output(pipe, "x")):
        with pytest.raises(DataError) as caught:
            function()
        assert str(caught.value) == f"{pipe}: cannot be written (nobody reads from this pipe)."
    assert pipe.is_fifo()


def test_devices_are_written_into():
    main, terminal = os.openpty()
    try:
        path = Path(os.ttyname(terminal))
        check_outputs([], [path, path])  # not replaced, so both may be written there
        write_output(path, "one line")
        assert os.read(main, 100) == b"one line"
        assert path.is_char_device()
    finally:
        os.close(main)
        os.close(terminal)


def test_open_descriptors_are_written_through(tmp_path):
    read, write = os.pipe()
    check_outputs([], [Path(f"/dev/fd/{write}")])
    write_output(f"/dev/fd/{write}", "through a pipe")
    os.close(write)
    assert os.read(read, 100) == b"through a pipe"
    with pytest.raises(DataError, match=r"cannot be written \(Bad file descriptor\)"):
        check_outputs([], [Path(f"/dev/fd/{read}")])
    os.close(read)
    with (tmp_path / "log.txt").open("ab") as log:  # as the shell opens ">> log.txt"
        log.write(b"before, ")
        log.flush()
        (tmp_path / "stdout").symlink_to(f"/dev/fd/{log.fileno()}")  # as /dev/stdout is
        write_output(tmp_path / "stdout", "between, ")
        log.write(b"after")
    assert (tmp_path / "log.txt").read_text() == "before, between, after"


def test_what_is_neither_file_nor_stream_is_refused(tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/socket")  # such paths must be short
        for path, reason in (
            (Path(short, "socket"), "a device, a pipe or a socket, not a file"),
            (tmp_path, "Is a directory"),
        ):
            assert not is_stream(path)
            for function in (check_outputs, lambda _, paths: write_output(paths[0], "x")):
                with pytest.raises(DataError, match=rf"cannot be written \({reason}\)"):
                    function([], [path])
            assert path.exists()


def test_a_circle_of_links_is_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(DataError, match="cannot be written"):
        check_outputs([], [tmp_path / "a"])
    with pytest.raises(DataError, match="cannot be written"):
        write_output(tmp_path / "a", "x")
    assert (tmp_path / "a").is_symlink()
    assert (tmp_path / "b").is_symlink()


@pytest.mark.parametrize("name", ["a" * 300, "file/below", "zero\0byte"])
def test_names_that_no_file_can_have_are_refused(name, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        check_outputs([], [tmp_path / name])
