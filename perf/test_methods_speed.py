"""Speed of other methods against easyfsl and autograd, on one thread: ``make perf``."""

import dataclasses
import statistics
import time
from functools import partial

import pytest
import torch

from infoshot import solve
from infoshot.features import default_features_path, prepare, read_features
from infoshot.solvers import METHODS
from infoshot.solvers.alpha_tim import AlphaTim
from infoshot.tasks import TaskSpec, sample_tasks
from perf import literal, peers


@pytest.fixture(scope="module")
def real():
    """64 tasks of real, non-negative features: 5-way 5-shot, 15 queries, d = 512.

    Synthetic features are nearly equal after PT-MAP's square roots, so Sinkhorn converges at once.
    """
    table = read_features(default_features_path())
    unit = dataclasses.replace(table, features=prepare(table, "l2"))
    return sample_tasks(unit, TaskSpec(n_shot=5), 64)[0]


def _seconds(benchmark, n_tasks, work, rounds):
    benchmark.pedantic(work, rounds=rounds, warmup_rounds=1, iterations=1)
    return benchmark.stats.stats.min / n_tasks


def _seconds_of(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


OURS: dict[str, float] = {}
PEERS = {  # method: name in easyfsl, tasks to time it on, smallest accepted ratio
    "prototype": ("PrototypicalNetworks", 32, 1),
    "simpleshot": ("SimpleShot", 32, 1),
    "bd-cspn": ("BDCSPN", 32, 1),
    "laplacianshot": ("LaplacianShot", 32, 1),
    "pt-map": ("PTMAP", 4, 50),
}


@pytest.mark.parametrize("name", PEERS)
def test_ours(benchmark, real, name):
    solver = METHODS[name].solver
    OURS[name] = _seconds(benchmark, 64, lambda: solve(solver, real, n_threads=1), rounds=9)


@pytest.mark.parametrize("name", PEERS)
def test_easyfsl(benchmark, real, record, name):
    peers.install_torchvision_stub()
    pytest.importorskip("easyfsl", exc_type=ImportError)
    theirs, n_tasks, at_least = PEERS[name]
    few = real[:n_tasks]
    seconds = _seconds(benchmark, n_tasks, lambda: peers.easyfsl_method(theirs, few), rounds=3)
    record(f"{name}, 64 tasks, against easyfsl {theirs}", OURS[name], seconds, at_least)


@pytest.mark.parametrize("name", PEERS)
def test_one_by_one(real, record, name):
    """Both take turns task by task, so that other work on the machine slows both: medians."""
    peers.install_torchvision_stub()
    pytest.importorskip("easyfsl", exc_type=ImportError)
    theirs, n_tasks, _ = PEERS[name]
    singles = [real[i : i + 1] for i in range(n_tasks)]
    seconds = []
    for task in singles * 10:
        ours = _seconds_of(partial(solve, METHODS[name].solver, task, n_threads=1))
        seconds.append((ours, _seconds_of(partial(peers.easyfsl_method, theirs, task))))
    medians = [statistics.median(column) for column in zip(*seconds, strict=True)]
    record(f"{name}, one by one, against easyfsl {theirs}", *medians, at_least=1)


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
