"""Commands whose output nobody reads to the end, such as ``infoshot methods | head``."""

import os
import subprocess
import sys

import pytest

from tests.labelling.commands import run

PLAIN_HELP = {"TYPER_USE_RICH": "0"}  # typer writes the help at once


def run_unread(*arguments, until="", **environment):
    """Run a command whose reader closes the pipe after a line; return code and stderr."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "infoshot", *arguments], stdout=writer, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
    os.close(writer)
    with open(reader) as pipe:  # noqa: PTH123 - a descriptor
        while until and not pipe.readline().startswith(until):
            pass
    _, error = process.communicate(timeout=120)
    return process.returncode, error


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("reproduce", "--help"),
        ("data", "inspect", "--help"),
        ("methods",),
        ("methods", "--json", "/dev/stdout"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("environment", [{}, PLAIN_HELP], ids=["rich help", "plain help"])
def test_a_closed_pipe_ends_a_command_silently(arguments, environment):
    assert run_unread(*arguments, **environment) == (1, "")


@pytest.mark.parametrize(("command", "until"), [("reproduce --help", "╰"), ("methods", "prot")])
def test_a_reader_may_stop_after_some_lines(command, until):
    """After the frame of the help typer writes one more line, maybe before the pipe closes."""
    code, error = run_unread(*command.split(), until=until)
    assert error == ""
    assert code in (0, 1)


def test_a_refused_command_says_why_whoever_reads_its_output():
    code, error = run_unread("bench", "--ways", "99")
    assert code == 2
    assert error.startswith("Error: --ways must be at most 20")


def test_another_broken_pipe_is_an_error(monkeypatch):
    def fail():
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("infoshot.cli.methods.stdout", fail)
    result = run("methods")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: BrokenPipeError: [Errno 32] Broken pipe (")
