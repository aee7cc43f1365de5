"""How many files a reader passes through from ``infoshot reproduce`` to its report.

The limit is one for the whole package, so this test may move to the tests of the repository.
"""

import inspect
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

import infoshot
from infoshot.cli.app import app
from infoshot.solvers import METHODS

PACKAGE = Path(infoshot.__file__).parent
NUMERICAL_CORE = ("core", "solvers", "tasks", "metrics.py")
AT_MOST = 15


@pytest.fixture
def _quick(monkeypatch):
    """Take few steps and time few tasks, which changes nothing about the files."""
    for name in ("tim-gd", "tim-adm", "baseline", "baseline++"):
        monkeypatch.setitem(METHODS, name, METHODS[name].with_settings({"n_steps": 2}))
    monkeypatch.setattr("infoshot.reproduction.measurements._CURVE_TASKS", 2)
    monkeypatch.setattr("infoshot.reproduction.measurements._SINGLE_TASKS", 1)
    monkeypatch.setattr("infoshot.reproduction.measurements._ROUNDS", 1)
    monkeypatch.setattr("infoshot.reproduction.measurements._BATCH", {"cpu": 2})


def _trace(arguments):
    """Return the files of this package in which a function runs; class bodies do not count."""
    seen = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
            seen.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = CliRunner().invoke(app, arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert result.exit_code == 0, result.output
    files = {Path(name) for name in seen if name.startswith(str(PACKAGE))}
    return sorted(str(path.relative_to(PACKAGE)) for path in files)


@pytest.mark.usefixtures("_quick")
def test_reproduce_passes_through_few_files(tmp_path):
    arguments = ("reproduce", "--out", tmp_path / "r", "--tasks", 2, "--gradient-tasks", 1)
    files = _trace([str(argument) for argument in arguments])
    outside = [name for name in files if Path(name).parts[0] not in NUMERICAL_CORE]
    assert "reproduction/api.py" in outside
    assert len(outside) <= AT_MOST, outside
