"""Names of files and classes never control a terminal, and no encoding of it is a failure."""

import os
import pty
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from infoshot import FeatureTable
from infoshot.cli.app import app
from infoshot.core.errors import DataError
from infoshot.features import files

ODD = b"[red]\x1b[31m\xe9\r.npz"
CODE = """
import sys
from infoshot.cli._console import complain, print_table, stdout
from infoshot.core.progress import open_progress
name = "[red]\\x1b]0;title\\x07\\r\\udce9\\u202e:smile:"
with open_progress(True) as bar:
    bar.start(name, 3, "images")
    bar.say(name)
    bar.advance(3)
stdout().print(f"{name} \\u00b1 \\u4e2d")
print_table([name], [[name]], title=name)
complain("Error", name)
"""


@pytest.fixture
def table(tmp_path):
    """A feature file under an odd name."""
    path = tmp_path / os.fsdecode(ODD)
    features = np.tile(np.eye(4), (30, 1)) + np.random.default_rng(0).random((120, 4))
    with path.open("wb") as file:
        np.savez(file, features=features, labels=np.tile(np.arange(4), 30))
    return path


def run_in_terminal(*command):
    """Return the bytes that a command writes to a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stdout=follower, stderr=follower, stdin=follower)
    os.close(follower)
    written = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the process has ended
            break
        if not part:
            break
        written += part
    os.close(leader)
    process.wait(60)
    return written


def test_names_do_not_control_a_terminal():
    written = run_in_terminal(sys.executable, "-c", CODE)
    assert b"Traceback" not in written
    assert b"\x1b]0;" not in written
    assert b"\x07" not in written
    assert b"\xe2\x80\xae" not in written  # U+202E
    assert written.count(rb"[red]\x1b]0;title\x07\r\xe9\u202e:smile:") >= 5


def test_output_in_ascii_works(table):
    out = table.with_name("rows.csv")
    result = subprocess.run(
        [sys.executable, "-m", "infoshot", "bench", "--features", table, "--tasks", "2",
         "--ways", "2", "--methods", "prototype", "--csv", out, "--json", out.with_suffix(".json"),
         "--latex", out.with_suffix(".tex")],
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert rb"[red]\x1b[31m\xe9\r.npz" in result.stdout
    assert b"\x1b" not in result.stdout + result.stderr
    result.stdout.decode("ascii")
    for suffix in (".csv", ".json", ".tex"):
        out.with_suffix(suffix).read_text(encoding="utf-8").encode()
    assert r"\udc" not in out.with_suffix(".json").read_text()


def test_errors_are_one_line_without_control_characters(tmp_path):
    name = tmp_path / os.fsdecode(b"no\nsuch" + ODD)
    result = CliRunner().invoke(app, ["bench", "--features", str(name)])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert r"no\nsuch[red]\x1b[31m\xe9\r.npz: there is no such file." in result.stderr


@pytest.mark.parametrize("argument", [b"la\x1b[31m\xe9", b"--\x1b[31m\xe9"])
@pytest.mark.parametrize("before", [[], ["data"]])
def test_wrong_arguments_are_shown_without_control_characters(before, argument):
    result = CliRunner().invoke(app, [*before, os.fsdecode(argument)])
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert r"\x1b[31m" in result.stderr


def test_class_names_of_feature_files_are_checked(tmp_path):
    table = FeatureTable(torch.eye(2), torch.tensor([0, 1]), None, ("cat\r", "dog"), {})
    with pytest.raises(DataError, match=r"a\.safetensors: the class name 'cat\\r' contains"):
        files.write_features(tmp_path / "a.safetensors", table)
    np.savez(tmp_path / "a.npz", features=np.eye(2), labels=[0, 1], class_names=["cat\r", "dog"])
    with pytest.raises(DataError, match=r"a\.npz: the class name 'cat\\r' contains"):
        files.read_features(tmp_path / "a.npz")
