"""Every command, killed and interrupted at seeded moments, ends like an undisturbed one.

``python -m tests.kills --help`` runs the same by hand and says what is checked.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kills.commands import COMMANDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
N_MOMENTS = int(os.environ.get("INFOSHOT_KILL_MOMENTS", "14"))  # of each command


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Disturb all commands, in a new process, since this one may have used threads."""
    out = tmp_path_factory.mktemp("kills") / "figures.json"
    given = ["--moments", str(N_MOMENTS), "--processes", "2", "--out", str(out)]
    command = [sys.executable, "-m", "tests.kills", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert out.exists(), done.stdout + done.stderr
    if name := os.environ.get("INFOSHOT_KILL_OUT"):
        Path(name).write_text(done.stdout)
    return {row["command"]: row for row in json.loads(out.read_text())}


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_a_disturbed_command_ends_like_an_undisturbed_one(command, figures):
    row = figures[command]
    assert not row["problems"]
    assert row["as undisturbed"] == N_MOMENTS
    assert row["at work"] >= N_MOMENTS // 2
