"""10,000 tasks of tim-adm, 1-shot, on the embedded features: seconds (best of three) and memory.

python -m perf.ten_thousand_tasks [results/ten_thousand_tasks.json]
"""

import json
import resource
import sys
from pathlib import Path

from infoshot.benchmark import Protocol, run_cell
from infoshot.data import TaskSpec
from infoshot.environment import environment
from infoshot.features import default_features_path, read_features
from infoshot.solvers import METHODS


def _peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    table = read_features(default_features_path())
    before, conditions = _peak_megabytes(), environment()
    protocol = Protocol(spec=TaskSpec(n_shot=1), n_tasks=10_000)
    rows = [run_cell(table, METHODS["tim-adm"], protocol) for _ in range(3)]
    report = {
        "seconds": [round(row.seconds, 2) for row in rows],
        "best_seconds": round(min(row.seconds for row in rows), 2),
        "accuracy": round(rows[0].mean, 2),
        "peak_memory_growth_mb": round(_peak_megabytes() - before),
        "environment": conditions,
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)


if __name__ == "__main__":
    main()
