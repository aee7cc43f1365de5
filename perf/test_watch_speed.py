"""CPU time that watching the objective takes, as a ratio of solves that alternate in one run."""

import time

import pytest

from infoshot import TimAdm, TimAuto, solve
from infoshot.solvers import Solver
from infoshot.tasks import gaussian_tasks

SHAPES = {
    "5-way 1-shot, 64 tasks": {"n_tasks": 64, "n_way": 5, "n_shot": 1},
    "5-way 5-shot, 64 tasks": {"n_tasks": 64, "n_way": 5, "n_shot": 5},
    "5-way 5-shot, one task": {"n_tasks": 1, "n_way": 5, "n_shot": 5},
    "20-way 5-shot, 8 tasks": {"n_tasks": 8, "n_way": 20, "n_shot": 5},
    "30-way 5-shot, two tasks": {"n_tasks": 2, "n_way": 30, "n_shot": 5},
}


@pytest.mark.parametrize("solver", [TimAdm(), TimAuto()], ids=["tim-adm", "tim-auto"])
@pytest.mark.parametrize("shape", SHAPES)
def test_watching_costs_little(solver, shape, record, monkeypatch):
    tasks, _ = gaussian_tasks(**SHAPES[shape], dim=640, separation=1.0, seed=1)
    watching, times = type(solver).objective, {True: [], False: []}
    for _ in range(max(12, 60 // len(tasks))):
        for watched, objective in ((True, watching), (False, Solver.objective)):
            monkeypatch.setattr(type(solver), "objective", objective)
            start = time.process_time()
            solve(solver, tasks, n_threads=1, quiet=True)
            times[watched].append(time.process_time() - start)
    name = f"{type(solver).__name__}, {shape}, against not watching the objective"
    record(name, *(min(times[watched]) / len(tasks) for watched in (True, False)), at_least=0.95)
