"""Damaged input of every kind is refused in one line, or read: never anything else.

``python -m tests.fuzz --help`` runs the same by hand.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.kinds import KINDS

ROOT = Path(__file__).parents[2]


def run(folder, cases, *more):
    """Run the fuzzer in a new process, since this one may have used threads, and must not fork."""
    out = folder / "figures.json"
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(cases), "--out", str(out), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert out.exists(), done.stdout + done.stderr
    return json.loads(out.read_text()), done.stdout


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    return run(tmp_path_factory.mktemp("fuzz"), 272)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damaged_input_is_refused_or_read(kind, some):
    figures, printed = some
    assert not [failure for failure in figures["failures"] if failure["kind"] == kind], printed


@pytest.mark.slow
def test_ten_thousand_damaged_inputs_are_refused_or_read(tmp_path):
    figures, printed = run(tmp_path, 10_000, "--seed", "1000000", "--processes", "2")
    if name := os.environ.get("INFOSHOT_FUZZ_OUT"):
        Path(name).write_text(printed)
    assert not figures["failures"], printed
    for row in figures["rows"]:  # the intact files are good, and the damage is noticed
        assert row["accepted"], printed
        assert row["refused"], printed
