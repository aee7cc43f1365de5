"""Speed as ratios within one run, on one thread: ``make perf``. The tests do not depend on it."""

import pytest
import torch

from infoshot import TimAdm, TimGd, solve
from perf import literal, peers

TIMES: dict[str, float] = {}  # seconds per task


def _measure(benchmark, name, n_tasks, work, rounds=3):
    benchmark.pedantic(work, rounds=rounds, warmup_rounds=1, iterations=1)
    TIMES[name] = benchmark.stats.stats.min / n_tasks


def _ours(solver, tasks):
    return lambda: solve(solver, tasks, n_threads=1)


def test_adm(benchmark, tasks):
    _measure(benchmark, "adm", 64, _ours(TimAdm(), tasks), rounds=7)


def test_adm_one_by_one(benchmark, tasks):
    def work():
        for i in range(8):
            solve(TimAdm(), tasks[i : i + 1], n_threads=1)

    _measure(benchmark, "adm one by one", 8, work)


def test_adm_literal(benchmark, tasks, record):
    _measure(benchmark, "literal adm", 64, lambda: literal.tim_adm(tasks), rounds=2)
    expected, ours = literal.tim_adm(tasks), solve(TimAdm(), tasks).probabilities
    close = (expected - ours).abs().amax((1, 2)) < 1e-3
    assert close.double().mean() > 0.9, "they must compute the same"
    record(
        "TIM-ADM, 64 tasks, against Proposition 2 as it stands",
        TIMES["adm"],
        TIMES["literal adm"],
        8,
    )


def test_gd(benchmark, tasks):
    _measure(benchmark, "gd", 64, _ours(TimGd(n_steps=100), tasks))


def test_gd_autograd(benchmark, tasks, record):
    _measure(benchmark, "autograd gd", 64, lambda: literal.tim_gd(tasks, 100), rounds=2)
    expected, ours = literal.tim_gd(tasks, 100), solve(TimGd(n_steps=100), tasks).probabilities
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)
    record("TIM-GD (100 steps), 64 tasks, against autograd", TIMES["gd"], TIMES["autograd gd"], 1.8)


def test_gd_one_task(benchmark, tasks):
    _measure(benchmark, "gd one", 1, _ours(TimGd(n_steps=200), tasks[:1]))


def test_gd_one_task_autograd(benchmark, tasks, record):
    _measure(benchmark, "autograd gd one", 1, lambda: literal.tim_gd(tasks[:1], 200))
    record(
        "TIM-GD (200 steps), one task, against autograd",
        TIMES["gd one"],
        TIMES["autograd gd one"],
        4,
    )


@pytest.fixture(scope="module")
def easyfsl():
    peers.install_torchvision_stub()
    return pytest.importorskip("easyfsl", exc_type=ImportError)


def test_easyfsl_default_steps(benchmark, tasks, easyfsl, record):
    few = tasks[:8]
    _measure(benchmark, "easyfsl 50", 8, lambda: peers.easyfsl_tim(few, 50))
    record(
        "TIM-ADM (150 steps), against easyfsl TIM (50 steps)", TIMES["adm"], TIMES["easyfsl 50"], 25
    )


def test_gd_whole(benchmark, tasks):
    _measure(benchmark, "gd whole", 64, _ours(TimGd(), tasks), rounds=1)


def test_gd_one_task_whole(benchmark, tasks):
    _measure(benchmark, "gd one whole", 1, _ours(TimGd(), tasks[:1]), rounds=3)


def test_easyfsl_thousand_steps(benchmark, tasks, easyfsl, record):
    few = tasks[:2]
    _measure(benchmark, "easyfsl 1000", 2, lambda: peers.easyfsl_tim(few, 1000), rounds=2)
    record(
        "TIM-GD (1000 steps), against easyfsl TIM (1000 steps)",
        TIMES["gd whole"],
        TIMES["easyfsl 1000"],
        6,
    )


def test_easyfsl_one_by_one(easyfsl, record):
    record(
        "TIM-ADM (150 steps), one by one, against easyfsl TIM (50 steps)",
        TIMES["adm one by one"],
        TIMES["easyfsl 50"],
        1,
    )
    record(
        "TIM-GD (1000 steps), one task, against easyfsl TIM (1000 steps)",
        TIMES["gd one whole"],
        TIMES["easyfsl 1000"],
        1,
    )
