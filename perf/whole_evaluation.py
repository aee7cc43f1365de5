"""TIM-ADM cells of Table 1 end to end on all cores: draw, solve and score 20,000 tasks.

python -m perf.whole_evaluation [results/whole_evaluation.json]

Also runs 1,000, 10,000 and 50,000 tasks, each in a separate process: time must grow with the number
of tasks, memory must not.
"""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from infoshot.benchmark import Protocol, score_cell
from infoshot.core.environment import environment
from infoshot.features import default_features_path, read_features
from infoshot.solvers import METHODS
from infoshot.tasks import TaskSpec


def run(n_shot, n_tasks):
    table = read_features(default_features_path())
    protocol = Protocol(spec=TaskSpec(n_shot=n_shot), n_tasks=n_tasks)
    return score_cell(table, METHODS["tim-adm"], protocol)[0]


def run_in_new_process(n_tasks):
    """Run tasks in a new process, after tasks that warm up and fill the allocator's pools."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(run, 1, 500).result()
        return pool.submit(run, 1, n_tasks).result()


def main():
    conditions = environment()
    run(1, 500)  # warm
    rounds = [[run(n_shot, 10_000) for n_shot in (1, 5)] for _ in range(3)]
    seconds = [sum(row.seconds for row in rows) for rows in rounds]
    growth = [run_in_new_process(n_tasks) for n_tasks in (1_000, 10_000, 50_000)]
    report = {
        "seconds_of_20000_tasks": [round(value, 2) for value in seconds],
        "best_seconds": round(min(seconds), 2),
        "accuracy": [round(row.mean, 2) for row in rounds[0]],
        "growth": [
            {
                "tasks": row.tasks,
                "seconds": round(row.seconds, 2),
                "ms_per_task": round(row.per_task_ms, 3),
                "memory_mb": round(row.memory_mb),
            }
            for row in growth
        ],
        "environment": conditions,
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
