"""Wrong variables of a job are one sentence, in the library and on the command line."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from infoshot import InvalidArgumentError
from infoshot.cli.app import app
from infoshot.distributed import join_processes
from infoshot.images.decoding import decode_workers

JOB = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
       "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}  # fmt: skip
WRONG = {
    "WORLD_SIZE": ["two", "-1", "0", "1e3", "9" * 5000],
    "RANK": ["x", "-1", "2", "0.5"],
    "LOCAL_RANK": ["x", "-1"],
    "LOCAL_WORLD_SIZE": ["x", "-4", "0", "3"],
    "MASTER_PORT": ["x", "0", "70000"],
}
CASES = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda text: text[:16])
def test_wrong_variables_are_named_with_their_value(name, value):
    with pytest.raises(InvalidArgumentError, match=f"variable {name} must be .*got '{value}'"):
        join_processes("cpu", {**JOB, name: value}).__enter__()


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_missing_variables_are_named(name):
    environ = {variable: value for variable, value in JOB.items() if variable != name}
    device = "cuda" if name == "LOCAL_RANK" else "cpu"
    with pytest.raises(InvalidArgumentError, match=f"WORLD_SIZE is '2', but {name} is not set"):
        join_processes(device, environ).__enter__()


def test_a_rank_needs_a_size():
    with pytest.raises(InvalidArgumentError, match=r"RANK must be below .* 1; got '3'"):
        join_processes("cpu", {"RANK": "3"}).__enter__()


def test_empty_variables_are_not_set():
    with join_processes("cpu", dict.fromkeys(JOB, "")) as ranks:
        assert ranks.size == 1


def test_workers_need_a_number_of_processes(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "many")
    with pytest.raises(InvalidArgumentError, match=r"LOCAL_WORLD_SIZE must be .* got 'many'"):
        decode_workers()


@pytest.mark.parametrize(
    ("name", "value"),
    [("LOCAL_WORLD_SIZE", "0"), ("WORLD_SIZE", "\x1b[31m"), ("OMP_NUM_THREADS", "-2")],
)
def test_commands_check_variables_before_anything_else(name, value, monkeypatch, tmp_path):
    monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["bench", "--features", "missing.npz"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: the environment variable {name} must be a whole")
    assert "\x1b" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_cache_must_be_a_folder(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("INFOSHOT_CACHE", str(tmp_path / "file"))
    result = CliRunner().invoke(app, ["label", "examples", "photos", "--out", str(tmp_path / "r")])
    assert result.exit_code == 2
    assert "variable INFOSHOT_CACHE must name a folder; got '" in result.stderr


def test_a_real_process_ends_with_one_line():
    result = subprocess.run(
        [sys.executable, "-m", "infoshot", "extract-shards", "photos", "--out", "x"],
        env={**os.environ, "LOCAL_WORLD_SIZE": "zwei"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr == (
        "Error: the environment variable LOCAL_WORLD_SIZE must be a whole number of at least 1; "
        "got 'zwei'.\n"
    )
