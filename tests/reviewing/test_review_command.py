"""``infoshot review`` as a user runs it."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.labelling.commands import run as run_command
from tests.reviewing.client import Client

ROOT = Path(__file__).parents[2]
# The command with a session that needs no images.
COMMAND = """
import sys
from infoshot.reviewing import api
from tests.reviewing.fake_session import FakeSession
api.Session = FakeSession
api.check_finished = lambda folder: None
from infoshot.__main__ import main
main()
"""
STOPPED = "Stopped; the same command opens the review again.\n"


@contextmanager
def started(run, *options):
    """Start the command and yield the process and its first lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "review", str(run), "--no-browser", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        yield process, [process.stdout.readline() for _ in range(3)]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_address_is_printed_and_signals_stop_the_server(number, tmp_path):
    with started(tmp_path) as (process, lines):
        title, url, advice = lines
        assert title == f"Review of {tmp_path}: 5 photos\n"
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/\?token=[\w-]{43}\n", url)
        assert advice == "Answers are saved as you go. Press Ctrl-C to stop.\n"
        client = Client(url.strip())
        assert client.get("/api/state").status == 200
        with client.events():
            start = time.monotonic()
            process.send_signal(number)
            assert process.stdout.readline() == STOPPED
            assert time.monotonic() - start < 5
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0


def test_a_second_command_names_the_address(tmp_path):
    with started(tmp_path) as (_, (_, url, _)), started(tmp_path) as (second, _):
        _, err = second.communicate(timeout=60)
        assert second.returncode == 2
        assert err == f"Error: {tmp_path}: open already at {url}"


def test_a_killed_server_leaves_no_lock(tmp_path):
    with started(tmp_path) as (process, (_, first, _)):
        process.kill()
        process.wait()
        with started(tmp_path) as (_, (_, second, _)):
            assert second == first  # an open page finds the server again


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_folder_without_a_run_is_one_sentence(kind, tmp_path):
    folder = tmp_path / "run"
    if kind == "empty":
        folder.mkdir()
    if kind == "file":
        folder.write_text("x")
    result = run_command("review", folder, "--no-browser")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert not folder.is_dir() or not list(folder.iterdir())


@pytest.mark.parametrize("port", ["0", "-1", "65536"])
def test_ports_out_of_range_are_refused(port, tmp_path):
    result = run_command("review", tmp_path, "--port", port)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: --port must be")
    assert result.stderr.count("\n") == 1


def test_other_hosts_are_warned_of(tmp_path):
    with started(tmp_path, "--host", "0.0.0.0") as (process, (_, url, _)):
        assert url.startswith("http://127.0.0.1:")
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert err.startswith("Warning: the review is served at 0.0.0.0, not only to this machine")
    assert err.count("\n") == 1
