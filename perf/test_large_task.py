"""One large task on two threads: alone and beside two busy processes, and neighbours of many rows.

Ratios within one run. The times beside busy processes are compared with those of PyTorch's own
threads, which wait for each other without giving up their cores.
"""

import subprocess
import sys
import time
from contextlib import contextmanager
from statistics import median

import pytest
import torch

from infoshot import TimAdm, TimAuto, solve
from infoshot.core.types import TaskBatch
from infoshot.solvers import neighbours

SOLVER = TimAdm(n_steps=50)


@pytest.fixture(scope="module")
def task():
    """20,000 queries of 10 classes in 128 dimensions."""
    return large_task(20_000)


def large_task(n_queries, n_way=10, dim=128):
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(n_way, dim, generator=generator)

    def draw(labels):
        z = centres[labels] + 3 * torch.randn(len(labels), dim, generator=generator)
        return torch.nn.functional.normalize(z, dim=1).unsqueeze(0)

    y_sup = torch.arange(n_way).repeat_interleave(5)
    y_qry = torch.randint(n_way, (n_queries,), generator=generator)
    return TaskBatch(draw(y_sup), y_sup.unsqueeze(0), draw(y_qry), n_way)


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_blocks(task):
    return solve(SOLVER, task, n_threads=2)


def in_products(task, monkeypatch):
    """The same steps over one block, whose products PyTorch's own threads share."""
    with monkeypatch.context() as changed:
        changed.setattr("infoshot.solvers.adm_blocks._LEAST_QUERIES", 10**9)
        return solve(SOLVER, task, n_threads=2)


@contextmanager
def busy_processes(n):
    """Other work: processes that use a core each."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    time.sleep(0.3)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def alternate(task, monkeypatch, rounds):
    """Median seconds in blocks and in products, measured in turn."""
    times = [
        (
            seconds(lambda: in_blocks(task)),
            seconds(lambda: in_products(task, monkeypatch)),
        )
        for _ in range(rounds)
    ]
    return [median(column) for column in zip(*times, strict=True)]


def test_one_large_task_beside_other_work(task, monkeypatch, record):
    in_blocks(task)
    in_products(task, monkeypatch)
    alone, products_alone = alternate(task, monkeypatch, 9)
    record("TIM-ADM, 20,000 queries, two threads, alone", alone, products_alone, 0.95)
    with busy_processes(2):
        beside, products_beside = alternate(task, monkeypatch, 3)
    record("the same beside two busy processes", beside, products_beside, 2)
    print(f"beside two busy processes: {beside / alone:.1f} times the time alone (fair: 2)")
    assert beside < 4 * alone


def test_neighbours_of_many_queries(monkeypatch, record):
    task = large_task(60_000)
    solver = TimAuto(n_steps=1, n_trial_steps=1)
    near = seconds(lambda: solve(solver, task, n_threads=1))
    monkeypatch.setattr(neighbours, "_MOST_SEARCHED", 10**9)
    exact = seconds(lambda: solve(solver, task, n_threads=1))
    record("neighbours of 60,000 queries in cells, against all pairs", near, exact, 3)
