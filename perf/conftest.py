import json
from pathlib import Path

import pytest
import torch

from infoshot.core.environment import environment
from infoshot.tasks import gaussian_tasks

RATIOS: dict[str, dict[str, float]] = {}


def pytest_addoption(parser):
    parser.addoption("--out", type=Path, help="JSON file for the ratios and the environment")


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tasks():
    """64 tasks of the paper's shape: 5-way 5-shot, 15 queries per class, d = 640."""
    return gaussian_tasks(64, n_way=5, n_shot=5, n_query=15, dim=640, separation=1.0, seed=1)[0]


@pytest.fixture(scope="session")
def record():
    """Record a ratio for the summary, and fail if it is below ``at_least``."""

    def keep(name, ours, theirs, at_least):
        ratio = theirs / ours
        RATIOS[name] = {
            "ours_ms": 1000 * ours,
            "theirs_ms": 1000 * theirs,
            "ratio": ratio,
            "at_least": at_least,
        }
        assert ratio >= at_least, f"{name}: {ratio:.1f} times faster; expected at least {at_least}"

    return keep


def pytest_terminal_summary(terminalreporter, config):
    if not RATIOS:
        return
    terminalreporter.section("speed ratios per task, one thread")
    for name, row in RATIOS.items():
        terminalreporter.line(
            f"{name:58} {row['ours_ms']:9.2f} ms  against {row['theirs_ms']:9.2f} ms"
            f"  {row['ratio']:7.1f}x  (at least {row['at_least']}x)"
        )
    if config.getoption("--out"):
        record = {"environment": environment(), "ratios": RATIOS}
        config.getoption("--out").write_text(json.dumps(record, indent=1) + "\n")
