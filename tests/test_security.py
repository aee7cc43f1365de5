"""The promises of SECURITY.md: each names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROMISES = [
    line
    for line in (ROOT / "SECURITY.md").read_text().splitlines()
    if line.startswith("|") and line not in ("| promise | test |", "|---|---|")
]


@pytest.mark.parametrize("line", PROMISES, ids=range(len(PROMISES)))
def test_every_promise_names_its_tests(line):
    _, promise, tests, _ = (
        line.split(" | ") if line.count(" | ") == 3 else ("", *line.split(" | "), "")
    )
    found = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert found, f"no test is named for: {promise}"
    for file, name in found:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.M), f"{file}::{name}"


def test_there_are_promises():
    assert len(PROMISES) > 20
