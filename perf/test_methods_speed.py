"""Other methods against easyfsl's and against autograd, one thread: ``make perf``."""

import dataclasses

import pytest
import torch

from infoshot import solve
from infoshot.features import unit_length
from infoshot.solvers import METHODS
from infoshot.solvers.alpha_tim import AlphaTim
from perf import literal, peers


@pytest.fixture(scope="module")
def positive(tasks):
    """The tasks with features that are not negative and of length one, as after a ReLU."""
    return dataclasses.replace(
        tasks, z_sup=unit_length(tasks.z_sup.abs()), z_qry=unit_length(tasks.z_qry.abs())
    )


def _seconds(benchmark, n_tasks, work, rounds):
    benchmark.pedantic(work, rounds=rounds, warmup_rounds=1, iterations=1)
    return benchmark.stats.stats.min / n_tasks


OURS: dict[str, float] = {}
PEERS = {  # method: theirs, tasks to time it on, least ratio
    "simpleshot": ("SimpleShot", 32, 1),
    "bd-cspn": ("BDCSPN", 32, 1),
    "laplacianshot": ("LaplacianShot", 32, 1),
    "pt-map": ("PTMAP", 4, 50),
}


@pytest.mark.parametrize("name", PEERS)
def test_ours(benchmark, positive, name):
    solver = METHODS[name].solver
    OURS[name] = _seconds(benchmark, 64, lambda: solve(solver, positive, n_threads=1), rounds=9)


@pytest.mark.parametrize("name", PEERS)
def test_easyfsl(benchmark, positive, record, name):
    peers.install_torchvision_stub()
    pytest.importorskip("easyfsl", exc_type=ImportError)
    theirs, n_tasks, at_least = PEERS[name]
    few = positive[:n_tasks]
    seconds = _seconds(benchmark, n_tasks, lambda: peers.easyfsl_method(theirs, few), rounds=3)
    record(f"{name}, 64 tasks, against easyfsl {theirs}", OURS[name], seconds, at_least)


def test_alpha_tim(benchmark, tasks):
    solver = AlphaTim(n_steps=100)
    OURS["alpha-tim"] = _seconds(benchmark, 64, lambda: solve(solver, tasks, n_threads=1), rounds=3)


def test_alpha_tim_autograd(benchmark, tasks, record):
    seconds = _seconds(benchmark, 64, lambda: literal.alpha_tim(tasks, 100), rounds=2)
    expected = literal.alpha_tim(tasks, 100)
    ours = solve(AlphaTim(n_steps=100), tasks).probabilities
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)
    record(
        "alpha-TIM (100 steps), 64 tasks, against autograd", OURS["alpha-tim"], seconds, at_least=3
    )
