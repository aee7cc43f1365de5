"""Outputs of the commands that are pipes, devices and links."""

import json
import os
import threading
import time

import pytest

from tests.labelling.commands import run


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def run_with_reader(pipe, *arguments):
    """Run a command that writes to a pipe; return its result and what a reader got."""
    content, finished = [], threading.Event()
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # a reader that is there from the start

    def read():
        """Read until nothing is left after the command, which may come and go at any moment."""
        while True:
            was_finished = finished.is_set()
            try:
                part = os.read(opened, 2**16)
            except BlockingIOError:  # a writer is there and has written nothing yet
                part = b""
            content.append(part)
            if not part and was_finished:
                return
            time.sleep(0 if part else 0.001)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        result = run(*arguments)
    finally:
        finished.set()
        reader.join(30)
        os.close(opened)
    return result, b"".join(content)


def test_json_goes_into_a_pipe(pipe):
    result, content = run_with_reader(pipe, "methods", "--json", pipe)
    assert result.exit_code == 0, result.output
    assert pipe.is_fifo()
    assert "tim-adm" in {entry["method"] for entry in json.loads(content)}
    assert [path.name for path in pipe.parent.iterdir()] == ["pipe"]


def test_rows_of_a_benchmark_go_into_a_pipe_once(pipe):
    options = ("--methods", "prototype", "--tasks", 2, "--shots", "1,5")
    result, content = run_with_reader(pipe, "bench", *options, "--json", pipe)
    assert result.exit_code == 0, result.output
    assert [row["shots"] for row in json.loads(content)] == [1, 5]
    assert [path.name for path in pipe.parent.iterdir()] == ["pipe"]  # no accuracies beside it


@pytest.mark.parametrize(
    "arguments",
    [
        ("methods", "--json", "OUT"),
        ("bench", "--tasks", "2", "--json", "OUT"),
        ("bench", "--tasks", "2", "--csv", "OUT"),
        ("bench", "--tasks", "2", "--latex", "OUT"),
        ("bench", "--tasks", "2", "--accuracies", "OUT"),
    ],
    ids=" ".join,
)
def test_a_pipe_that_nobody_reads_is_refused_before_any_work(arguments, pipe):
    result = run(*(pipe if argument == "OUT" else argument for argument in arguments))
    assert result.exit_code == 2, result.output
    assert result.stderr == f"Error: {pipe}: cannot be written (nobody reads from this pipe).\n"
    assert pipe.is_fifo()


def test_json_goes_to_a_device():
    main, terminal = os.openpty()
    content = []

    def read():
        while b"\0" not in b"".join(content):
            content.append(os.read(main, 65536))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    path = os.ttyname(terminal)
    result = run("methods", "--json", path)
    os.write(terminal, b"\0")
    assert result.exit_code == 0, result.output
    reader.join(30)
    assert json.loads(b"".join(content).rstrip(b"\0"))
    os.close(terminal)
    os.close(main)


def test_links_to_results_stay(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    result = run("methods", "--json", tmp_path / "link.json")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())
