"""Many small tasks on a GPU: sampling, gathering and solving, with the kernels and without.

python -m perf.many_tasks [--tasks 10000] [--json results/many_tasks.json]

5 classes, 5 shots, 15 queries, 640 features, from a table that lies on the GPU. Times are those of
everything from the seed to labels, the best of three after a first round.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import torch

from infoshot import TimAdm, TimAuto, TimGd, solve
from infoshot.core.environment import environment
from infoshot.core.types import FeatureTable
from infoshot.metrics import accuracy
from infoshot.solvers import _kernels as kernels
from infoshot.solvers import tasks_per_chunk
from infoshot.tasks import TaskSpec
from infoshot.tasks.sampler import TaskSampler, gather_tasks

SOLVERS = {"tim-adm": TimAdm(), "tim-gd": TimGd(), "tim-auto": TimAuto()}
CLASSES, PER_CLASS, DIM = 20, 600, 640


def make_table(device):
    generator = torch.Generator(device).manual_seed(0)
    centres = torch.randn(CLASSES, 1, DIM, device=device, generator=generator)
    noise = torch.randn(CLASSES, PER_CLASS, DIM, device=device, generator=generator)
    features = torch.nn.functional.normalize(centres + 3 * noise, dim=-1).flatten(0, 1)
    labels = torch.arange(CLASSES, device=device).repeat_interleave(PER_CLASS)
    return FeatureTable(features, labels)


def everything(table, solver, n_tasks, n_at_once):
    """Mean accuracy of tasks that are drawn, gathered and solved."""
    sampler = TaskSampler(table, TaskSpec(n_shot=5))
    right = []
    for start in range(0, n_tasks, n_at_once):
        chunk = range(start, min(start + n_at_once, n_tasks))
        tasks, labels = gather_tasks(table, sampler, chunk)
        solution = solve(solver, tasks, validate=False, chunk_size=n_at_once)
        right.append(accuracy(solution.probabilities, labels))
    return torch.cat(right).mean()


def milliseconds(work, rounds=3):
    result = work()  # builds kernels
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return min(times), float(result)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    table, rows = make_table(options.device), []
    available = kernels.availability.available
    for name, solver in SOLVERS.items():
        for n_tasks in (options.tasks, 1):
            one, _ = gather_tasks(table, TaskSampler(table, TaskSpec(n_shot=5)), range(1))
            n_at_once = min(n_tasks, tasks_per_chunk(solver, one))
            row = {"method": name, "tasks": n_tasks, "at_once": n_at_once}
            for how, has in (("kernel", available), ("plain", lambda device: False)):
                kernels.availability.available = has
                rounds = 3 if how == "kernel" else 1
                work = partial(everything, table, solver, n_tasks, n_at_once)
                ms, mean = milliseconds(work, rounds)
                row |= {f"{how}_ms": round(ms, 2), f"{how}_accuracy": round(100 * mean, 3)}
            rows.append(row)
            print(row, flush=True)
    kernels.availability.available = available
    if options.json:
        text = {"rows": rows, "environment": environment(options.device)}
        options.json.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
