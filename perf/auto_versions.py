"""Time per task of tim-auto and tim-adm, alone and in a batch, for a comparison of two versions.

python -m perf.auto_versions [--device cuda] [--other FOLDER]

FOLDER has the package of another version, as ``git archive COMMIT src | tar x -C FOLDER`` writes
it. The two versions run in turns, each in a new process, on the same tasks of the embedded
features. Preparing the features and drawing the tasks do not count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

FEATURES = Path(__file__).parents[1] / "src/infoshot/assets/mini_test_resnet18.safetensors"
TURNS, BATCH, SINGLE_TASKS, BATCHES = 2, {"cpu": 512, "cuda": 10_000}, 10, 3


def measure(device):
    """Milliseconds per task, by method, shots and number of tasks."""
    import torch

    from infoshot import TaskSpec, read_features, sample_tasks, solve
    from infoshot.core.types import FeatureTable
    from infoshot.features import prepare
    from infoshot.solvers import METHODS

    torch.set_num_threads(1)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    table, found = read_features(FEATURES), {}
    for name in ("tim-adm", "tim-auto"):
        method = METHODS[name]
        z = prepare(table, method.preparation).to(device)
        prepared = FeatureTable(z, table.labels.to(device))
        for shots in (1, 5):
            for n_tasks, rounds in ((1, SINGLE_TASKS), (BATCH[device], BATCHES)):
                tasks, _ = sample_tasks(prepared, TaskSpec(n_shot=shots), n_tasks)
                solve(method.solver, tasks)  # a warm-up
                seconds = []
                for _ in range(rounds):
                    wait()
                    start = time.perf_counter()
                    solve(method.solver, tasks)
                    wait()
                    seconds.append(time.perf_counter() - start)
                key = f"{name}, {shots}-shot, {n_tasks:,} tasks"
                found[key] = 1000 * statistics.median(seconds) / n_tasks
    return found


def main():
    """Measure this version, and another one in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=BATCH, default="cpu")
    parser.add_argument("--other", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.device)))
        return
    versions = {"this": Path(__file__).parents[1] / "src"}
    if given.other:
        versions = {"other": given.other / "src"} | versions
    command = [sys.executable, __file__, "--one", "--device", given.device]
    for turn in range(TURNS):
        for version, source in versions.items():
            environment = {**os.environ, "PYTHONPATH": str(source)}
            found = subprocess.run(command, env=environment, capture_output=True, text=True)
            if found.returncode:
                sys.exit(found.stderr)
            row = {"turn": turn, "version": version, "device": given.device}
            print(json.dumps({**row, "ms": json.loads(found.stdout)}), flush=True)


if __name__ == "__main__":
    main()
